"""Somebody who follows a page of the documentation: runs its commands, and compares what they answer."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tools.pages import Block, Command, commands

PATIENCE_S = 300  # of one step on a busy machine; a quiet one takes a few seconds
BUSY = re.compile(r"^(alert: .*|the query on .*: a Python process took longer to start .*)\n", re.M)


@dataclass
class Reader:
    """Somebody who follows the page in an empty folder, with ports of their own."""

    folder: Path
    broker: str
    console: str
    running: list[tuple[Command, subprocess.Popen, Path]] = field(default_factory=list)

    def follow(self, block: Block) -> None:
        if block.note.startswith("not run"):
            return
        if block.file is not None:
            (self.folder / block.file).write_text(block.text)
            return
        assert block.language == "console", f"line {block.line}: nobody says what to do with this block"
        for command in commands(block):
            if block.note == "keeps running":
                self.start(command)
            else:
                self.run(command, repeat=block.note == "waits")

    def run(self, command: Command, *, repeat: bool) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            ended = subprocess.run(
                ["bash", "-c", self.typed(command)],
                cwd=self.folder,
                env=self.environment(),
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
            )
            shown = self.as_on_the_page(ended.stdout)
            if ended.returncode == 0 and command.answers().fullmatch(shown):
                return
            if not repeat or time.monotonic() > deadline:
                raise AssertionError(
                    f"$ {command.text}\nexit code {ended.returncode}\n{shown}\n{ended.stderr}\n"
                    f"and not, as the page says:\n{command.answer}\n\n{self.outputs()}"
                )
            time.sleep(0.2)

    def start(self, command: Command) -> None:
        output = self.folder.parent / f"output-{len(self.running)}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self.typed(command)}"],
                cwd=self.folder,
                env=self.environment(),
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.running.append((command, process, output))
        deadline = time.monotonic() + PATIENCE_S
        while not command.answers().match(self.as_on_the_page(output.read_text())):
            assert process.poll() is None, f"$ {command.text} ended\n{self.outputs()}"
            assert time.monotonic() < deadline, (
                f"$ {command.text} does not say\n{command.answer}\n{self.outputs()}"
            )
            time.sleep(0.1)

    def stop(self) -> list[int]:
        """Ctrl-C for what was started last, then for the others; their exit codes."""
        codes = []
        for _, process, _ in reversed(self.running):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            codes.append(process.wait(PATIENCE_S))
        self.running.clear()
        return codes

    def kill(self) -> None:
        for _, process, _ in reversed(self.running):
            process.kill()
            process.wait()

    def typed(self, command: Command) -> str:
        text = command.text.replace("127.0.0.1:9092", self.broker).replace("127.0.0.1:8080", self.console)
        return f"{text} --http {self.console}" if text.startswith("headrace run ") else text

    def as_on_the_page(self, output: str) -> str:
        """With the page's addresses, and without what only a very busy machine says."""
        shown = output.replace(self.broker, "127.0.0.1:9092").replace(self.console, "127.0.0.1:8080")
        shown = BUSY.sub("", shown)
        return re.sub(r"[ \t]+$", "", shown.rstrip("\n"), flags=re.M)

    def environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HEADRACE_", "PYTEST_", "SPARK_", "PYSPARK_"))
        }
        programs = str(Path(sys.executable).parent)
        return kept | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HEADRACE_LISTEN": self.broker,
            "HEADRACE_BOOTSTRAP": self.broker,
        }

    def outputs(self) -> str:
        return "\n".join(f"== {each.text}\n{path.read_text()}" for each, _, path in self.running)
