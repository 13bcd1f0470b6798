"""Kafka Connect as others run it: workers with their REST server, from Maven's jars.

    with ConnectWorkers(broker.bootstrap, count=2) as workers:
        workers.put("lines", {"connector.class": …})
        workers[0].kill()

Each worker is a process of its own on a free loopback port. Where Connect cannot
be had, `PeerUnavailable` says why.
"""

import contextlib
import json
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from headrace.errors import ConfigError
from headrace.testing.kafka import KAFKA_VERSION, find_peer_java, free_ports
from headrace.testing.maven import fetch_jars

__all__ = ["ConnectWorkers", "RestWorker", "fetch_connect"]

_ARTIFACTS = (
    ("org.apache.kafka", "connect-runtime", KAFKA_VERSION),
    ("org.apache.kafka", "connect-file", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)
_JSON = "org.apache.kafka.connect.json.JsonConverter"


def fetch_connect(cache: Path | None = None) -> Path:
    """The folder that holds Connect's jars, fetched through Maven the first time."""
    return fetch_jars("Kafka Connect", f"connect-{KAFKA_VERSION}", _ARTIFACTS, cache)


class RestWorker:
    """One worker of a Connect cluster: `start` does not wait, `wait_ready` does."""

    def __init__(self, jars: Path, folder: Path, properties: Mapping[str, str]) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.log_file = folder / "worker.log"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        listeners = {"listeners": self.url, "rest.advertised.port": str(port)}
        lines = [f"{name}={value}\n" for name, value in {**properties, **listeners}.items()]
        (folder / "worker.properties").write_text("".join(lines))
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        options = ("-Xmx384m", *quick, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        java = str(find_peer_java())
        self._command = [java, *options, "-cp", f"{jars}/*", main, str(folder / "worker.properties")]

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder
            )

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Ends it without a chance to tidy up."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def wait_ready(self, timeout_s: float = 90) -> None:
        """Waits until its server answers that it is healthy; ConfigError with its last words if it ends."""
        self.wait_until(lambda: self.ask("GET", "/health")["status"] == "healthy", timeout_s)

    def wait_until(self, is_so: Callable[[], bool], timeout_s: float = 90) -> None:
        """Asks until it is so; a refusal (rebalancing, no status yet) counts as not yet."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self.is_alive():
                raise ConfigError(f"Connect ended: {self._last_words()}")
            with contextlib.suppress(OSError, ValueError):  # HTTP errors are OSErrors
                if is_so():
                    return
            time.sleep(0.05)
        raise TimeoutError(f"not so within {timeout_s} s: {self._last_words()}")

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One REST call; urllib's HTTPError if it is refused."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)  # noqa: S310 - http, ours
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return json.loads(answer.read() or b"null")

    def _last_words(self) -> str:
        return self.log_file.read_text(errors="replace")[-2000:]

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class ConnectWorkers:
    """A Connect cluster of `count` workers with exactly-once source support; ended with the block."""

    def __init__(
        self, bootstrap: str, *, count: int = 2, properties: Mapping[str, str] | None = None
    ) -> None:
        jars = fetch_connect()
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-connect-"))
        settings = {**_cluster(bootstrap), **(properties or {})}
        self._workers = [RestWorker(jars, self._own_folder(number), settings) for number in range(count)]

    def _own_folder(self, number: int) -> Path:
        folder = self._folder / str(number)
        folder.mkdir()
        return folder

    def __getitem__(self, number: int) -> RestWorker:
        return self._workers[number]

    def __iter__(self) -> Iterator[RestWorker]:
        return iter(self._workers)

    def __enter__(self) -> Self:
        try:
            for worker in self:
                worker.start()
            for worker in self:
                worker.wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self:
            worker.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Creates a connector, as soon as the workers have found together."""

        def put_it() -> bool:
            self[0].ask("PUT", f"/connectors/{name}/config", config)
            return True

        self[0].wait_until(put_it)


def _cluster(bootstrap: str) -> dict[str, str]:
    topics = {"offset": "connect-offsets", "config": "connect-configs", "status": "connect-status"}
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "connect-cluster",
        "exactly.once.source.support": "enabled",
        "plugin.discovery": "service_load",
        "key.converter": _JSON,
        "value.converter": _JSON,
        "rest.advertised.host.name": "127.0.0.1",
        **{f"{kind}.storage.topic": topic for kind, topic in topics.items()},
        **{f"{kind}.storage.replication.factor": "1" for kind in topics},
    }
