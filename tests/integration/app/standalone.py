"""A Spark standalone cluster: a master and workers, each a process of its own, on loopback or on machines.

From the jars that pip installed with PySpark, on free ports, with all files in one folder, which
machines have one each of. Workers are told nothing of Headrace: whatever they know comes with what the
driver sends, or is in the environment that they are given.
"""

import os
import re
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pyspark

from headrace.java import find_java
from headrace.testing.machines import Machine

START_TIMEOUT_S = 120
HOME = Path(pyspark.__file__).parent


class StandaloneCluster:
    """Use it as a context manager; `url` is its master."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 1,
        cores: int = 1,
        memory: str = "1g",
        host: str = "127.0.0.1",
    ) -> None:
        self._folder = folder
        self._size = workers, cores, memory
        self._host = host
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> "StandaloneCluster":
        try:
            command = self._command("master", self._host, "--port", "0")
            with (self._folder / "master.log").open("wb") as log:
                started = subprocess.Popen(
                    command, cwd=self._folder, env=self._environment(self._host), stdout=log, stderr=log
                )
            self._processes.append(started)
            self.url = self._await("master", r"Starting Spark master at (spark://[\w.:]+)")
            workers, cores, memory = self._size
            for number in range(workers):
                self.add_worker(f"worker-{number}", cores=cores, memory=memory)
        except BaseException:
            self.close()
            raise
        return self

    def add_worker(
        self,
        name: str,
        *,
        cores: int = 1,
        memory: str = "1g",
        machine: Machine | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Returns once the master knows it; on a machine, if one is given."""
        host = machine.address if machine else self._host
        work = str(self._folder / name)
        size = ("--cores", str(cores), "--memory", memory, "--work-dir", work)
        command = self._command("worker", host, *size, self.url)
        environment = self._environment(host) | dict(env or {})
        with (self._folder / f"{name}.log").open("wb") as log:
            if machine:
                started = machine.popen(command, environment, log)
            else:
                started = subprocess.Popen(command, cwd=self._folder, env=environment, stdout=log, stderr=log)
        self._processes.append(started)
        self._await(name, r"(Successfully registered with master)")
        return started

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all processes; executors end with their worker."""
        for process in reversed(self._processes):
            process.kill()  # a Java of ours is deaf to other signals
            process.wait()

    def _command(self, kind: str, host: str, *arguments: str) -> list[str]:
        title = f"org.apache.spark.deploy.{kind}.{kind.capitalize()}"
        return [str(HOME / "bin" / "spark-class"), title, "--host", host, "--webui-port", "0", *arguments]

    def _environment(self, host: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return kept | {
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }

    def _await(self, name: str, pattern: str) -> str:
        log = self._folder / f"{name}.log"
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found[1]
            if self._processes[-1].poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"{log.name} does not say {pattern}:\n{log.read_text(errors='replace')[-3000:]}")
