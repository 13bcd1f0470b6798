"""A process of Kafka, broker and controller in one, and the folder with all its files.

`fetch_kafka` brings Kafka's jars into a cache outside the tree, once a machine. Where they cannot be had
(no Maven, no registry, no Java) `PeerUnavailable` says why.
"""

import base64
import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.errors import ConfigError
from headrace.java import find_java
from headrace.testing.maven import PeerUnavailable, fetch_jars, run_tool

__all__ = [
    "KAFKA_VERSION",
    "KafkaProcess",
    "cluster_id",
    "fetch_kafka",
    "find_peer_java",
    "free_ports",
    "node_settings",
    "wait_for_metadata",
    "wait_in_sync",
]

KAFKA_VERSION = "4.3.0"

# Kafka's libraries as Maven names them. The last one makes its log messages visible:
# the jars alone carry no logger, and a broker that cannot start would not say why.
_ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)

# What Kafka's own start script passes, so that the peer runs as its makers mean it to.
_JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
_QUIET_OPTIONS = ("-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")

# For tests of behaviour: half of the processor time of a start goes into the second compiler.
_QUICK_JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

# Ends what runs in the folder and removes it when our end of its input closes, however we end.
_WATCH = """
cat > /dev/null
for cwd in /proc/[0-9]*/cwd; do
  pid=${cwd#/proc/}
  [ "$(readlink "$cwd" 2> /dev/null)" = "$1" ] && kill -KILL "${pid%/cwd}"
done
rm -rf "$1"
"""


def fetch_kafka(cache: Path | None = None) -> Path:
    """The folder that holds Kafka's jars, fetched through Maven the first time."""
    return fetch_jars("Kafka", f"kafka-{KAFKA_VERSION}", _ARTIFACTS, cache)


class KafkaProcess:
    """One broker and controller; `format`, then `spawn`, as often as wanted.

    Data is kept by `end` and removed by `remove`, at the latest with the interpreter.
    """

    def __init__(self, *, heap: str, quick: bool, timeout_s: float) -> None:
        self._jars = fetch_kafka()
        self._java = find_peer_java()
        compiler = _QUICK_JVM_OPTIONS if quick else _JVM_OPTIONS
        self._options = (f"-Xmx{heap}", f"-Xms{heap}", *compiler, *_QUIET_OPTIONS)
        self._timeout_s = timeout_s
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[bytes]] = []
        watch = subprocess.Popen(  # noqa: S603 - our own command line
            ["/bin/sh", "-c", _WATCH, "headrace-kafka", str(self._folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._at_exit = weakref.finalize(self, _end_and_remove, self._started, watch, self._folder)
        self.data_dir = self._folder / "data"
        self.log_file = self._folder / "server.log"

    @property
    def pid(self) -> int:
        """The process id; raises when it is not running."""
        if self._process is None:
            raise ConfigError("this Kafka is not running; call restart()")
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def format(self, settings: Mapping[str, str], cluster: str) -> None:
        """Begins with empty data, as a node of this cluster."""
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self._folder / "server.properties").write_text("".join(lines))
        shutil.rmtree(self.data_dir, ignore_errors=True)
        arguments = ("format", "--cluster-id", cluster, "--config")
        done = run_tool(self._command("kafka.tools.StorageTool", *arguments), timeout_s=self._timeout_s)
        if done.returncode != 0:
            raise ConfigError(f"Kafka refused its configuration: {(done.stdout + done.stderr)[-2000:]}")

    def spawn(self) -> None:
        """Starts the process and does not wait for it."""
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                self._command("kafka.Kafka"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        self._started.append(self._process)

    def end(self, how: signal.Signals) -> None:
        """Ends the process if it runs; the data stays."""
        if self._process is not None:
            _end_process(self._process, how)
            self._process = None

    def remove(self) -> None:
        """Ends the process and removes its data; harmless when repeated."""
        self._at_exit()

    def last_words(self) -> str:
        return (
            self.log_file.read_text(errors="replace")[-2000:] if self.log_file.exists() else "it said nothing"
        )

    def _command(self, main: str, *arguments: str) -> list[str]:
        properties = str(self._folder / "server.properties")
        return [str(self._java), *self._options, "-cp", f"{self._jars}/*", main, *arguments, properties]


def node_settings(
    data_dir: Path, host: str, broker_port: int, controller_port: int, *, node: int = 1, voters: str = ""
) -> dict[str, str]:
    """Of one node that keeps Kafka's defaults, alone unless there are other `voters`."""
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": voters or f"{node}@{host}:{controller_port}",
        "listeners": f"PLAINTEXT://{host}:{broker_port},CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{broker_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data_dir),
        # A group of one consumer need not wait three seconds for others.
        "group.initial.rebalance.delay.ms": "0",
    }


def wait_for_metadata(
    bootstrap: str, is_alive: Callable[[], bool], timeout_s: float, *, brokers: int = 1
) -> bool:
    """Waits until a client gets a metadata answer naming so many brokers; False if one died meanwhile.

    Raises TimeoutError after `timeout_s`. The client retries every few
    milliseconds, so the wait ends with the first moment a client could work.
    """
    deadline = time.monotonic() + timeout_s
    client = AdminClient(
        {
            "bootstrap.servers": bootstrap,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 20,
            "log_level": 0,
            "allow.auto.create.topics": False,
        }
    )
    while time.monotonic() < deadline:
        if not is_alive():
            return False
        with contextlib.suppress(KafkaException):
            if len(client.list_topics(timeout=0.5).brokers) >= brokers:
                return True
    raise TimeoutError(f"no metadata answer from {bootstrap} that names {brokers} within {timeout_s} s")


def wait_in_sync(bootstrap: str, timeout_s: float) -> None:
    """Waits until every partition has all of its replicas in sync; raises TimeoutError."""
    deadline = time.monotonic() + timeout_s
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    behind = ["all"]
    while behind and time.monotonic() < deadline:
        with contextlib.suppress(KafkaException):
            behind = list(_behind(client.list_topics(timeout=1).topics.values()))
        time.sleep(0.05)
    if behind:
        raise TimeoutError(f"not in sync after {timeout_s} s: {', '.join(behind)}")


def _behind(topics: Iterable[Any]) -> Iterator[str]:
    for topic in topics:
        for number, each in topic.partitions.items():
            if each.leader < 0 or len(each.isrs) < len(each.replicas):
                yield f"{topic.topic}-{number}"


def find_peer_java() -> Path:
    """The `java` that runs a peer; raises PeerUnavailable where there is none."""
    try:
        return find_java().runtime / "bin" / "java"
    except ConfigError as none_found:
        raise PeerUnavailable(str(none_found)) from none_found


def cluster_id() -> str:
    """A random id in Kafka's spelling; one that starts with a dash would be taken for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def free_ports(count: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Ports of an address that nobody listens on at this moment."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((host, 0))
        ports = [one.getsockname()[1] for one in sockets]
    yield from ports


def _end_process(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(how)
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_and_remove(
    processes: list[subprocess.Popen[bytes]], watch: subprocess.Popen[bytes], folder: Path
) -> None:
    for process in (*processes, watch):
        _end_process(process, signal.SIGKILL)
    if watch.stdin is not None:
        watch.stdin.close()
    shutil.rmtree(folder, ignore_errors=True)
