"""A Spark standalone cluster on loopback: a master and workers, each a process of its own.

From the jars that pip installed with PySpark, on free ports, with all files in one folder. Workers
are told nothing of Headrace: whatever they know comes with what the driver sends.
"""

import os
import re
import subprocess
import time
from pathlib import Path

import pyspark

from headrace.java import find_java

START_TIMEOUT_S = 120
HOME = Path(pyspark.__file__).parent


class StandaloneCluster:
    """Use it as a context manager; `url` is its master."""

    def __init__(self, folder: Path, *, workers: int = 1, cores: int = 1, memory: str = "1g") -> None:
        self._folder = folder
        self._size = workers, cores, memory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> "StandaloneCluster":
        try:
            master = self._start("master", "--webui-port", "0", "--port", "0")
            self.url = self._await(master, r"Starting Spark master at (spark://[\w.:]+)")
            workers, cores, memory = self._size
            for number in range(workers):
                self.add_worker(f"worker-{number}", cores=cores, memory=memory)
        except BaseException:
            self.close()
            raise
        return self

    def add_worker(self, name: str, *, cores: int = 1, memory: str = "1g") -> subprocess.Popen[bytes]:
        """Returns once the master knows it."""
        work = str(self._folder / name)
        size = ("--cores", str(cores), "--memory", memory, "--work-dir", work)
        log = self._start(name, "--webui-port", "0", *size, self.url, kind="worker")
        self._await(log, r"(Successfully registered with master)")
        return self._processes[-1]

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all processes; executors end with their worker."""
        for process in reversed(self._processes):
            process.kill()  # a Java of ours is deaf to other signals
            process.wait()

    def _start(self, name: str, *arguments: str, kind: str = "master") -> Path:
        log = self._folder / f"{name}.log"
        title = f"org.apache.spark.deploy.{kind}.{kind.capitalize()}"
        command = [str(HOME / "bin" / "spark-class"), title, "--host", "127.0.0.1", *arguments]
        with log.open("wb") as file:
            self._processes.append(
                subprocess.Popen(command, cwd=self._folder, env=self._environment(), stdout=file, stderr=file)
            )
        return log

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return kept | {
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }

    def _await(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found[1]
            if self._processes[-1].poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"{log.name} does not say {pattern}:\n{log.read_text(errors='replace')[-3000:]}")
