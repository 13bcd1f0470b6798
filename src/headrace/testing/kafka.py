"""A real Kafka, to compare with: what "right" is, and how fast the others are.

`fetch_kafka` brings Kafka's jars into a cache outside the tree, once a machine;
`KafkaServer` runs one broker from them, controller included, in a process of its
own on loopback ports, with its data in a temporary folder:

    with KafkaServer({"message.max.bytes": "20000000"}) as kafka:
        Producer({"bootstrap.servers": kafka.bootstrap})

Where it cannot be had (no Maven, no registry, no Java) both raise
`PeerUnavailable`, whose message is the reason to skip with. A Kafka that is there
and does not start is another matter: ConfigError, with its last words.
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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.errors import ConfigError
from headrace.java import find_java
from headrace.testing.maven import PeerUnavailable, fetch_jars, run_tool

__all__ = ["KAFKA_VERSION", "KafkaServer", "PeerUnavailable", "fetch_kafka", "wait_for_metadata"]

KAFKA_VERSION = "4.3.0"

# Kafka's libraries as Maven names them. The last one makes its log messages visible:
# the jars alone carry no logger, and a broker that cannot start would not say why.
_ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)

# What Kafka's own start script passes, so that the peer runs as its makers mean it to.
_HEAP_OPTIONS = ("-Xmx1G", "-Xms1G")
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


def wait_for_metadata(bootstrap: str, is_alive: Callable[[], bool], timeout_s: float) -> bool:
    """Waits until a client gets a metadata answer naming a broker; False if the broker died meanwhile.

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
            if client.list_topics(timeout=0.5).brokers:
                return True
    raise TimeoutError(f"no metadata answer from {bootstrap} within {timeout_s} s")


class KafkaServer:
    """One Kafka broker and controller in a process of its own.

    Started by the constructor, which returns once a client gets answers. Data is
    kept by `kill` and `restart` and removed by `stop`; the process ends with
    `stop`, with the `with` block, and at the latest with the interpreter.

    `settings` are added to, and win over, those of a single node that keeps
    Kafka's defaults: in particular it does not sync before it acknowledges
    (`{"log.flush.interval.messages": "1"}` makes it).

    With `users` (names and passwords) it also listens on `sasl_bootstrap`, where
    they log in by PLAIN, or by SCRAM once they have credentials for it, and may do
    only what is allowed to them; `admin` may do everything.

    `quick` starts it with less of a compiler: for tests of what it does, never for
    measurements of how fast.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        users: Mapping[str, str] | None = None,
        quick: bool = False,
        timeout_s: float = 180,
    ) -> None:
        self._jars = fetch_kafka()
        self._java = find_peer_java()
        self._settings = dict(settings or {})
        self._users = dict(users or {})
        self._jvm_options = _QUICK_JVM_OPTIONS if quick else _JVM_OPTIONS
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
        self.bootstrap = ""
        self.sasl_bootstrap = ""
        self.start_seconds = 0.0
        try:
            self._choose_ports_and_start()
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The broker's process id; raises when it is not running."""
        if self._process is None:
            raise ConfigError("this Kafka is not running; call restart()")
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def rss_bytes(self) -> int:
        """Resident memory of the broker's process."""
        return int(run_tool(["ps", "-o", "rss=", "-p", str(self.pid)], timeout_s=10).stdout) * 1024

    def kill(self) -> None:
        """Ends the process without a chance to tidy up, as `kill -9` does; the data stays."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Ends the process if it runs, in good order, and starts it on the same data and ports."""
        self._end(signal.SIGTERM)
        if not self._start():
            raise ConfigError(f"Kafka did not start again: {self._last_words()}")

    def stop(self) -> None:
        """Ends the process and removes its data; harmless when repeated."""
        self._end(signal.SIGTERM)
        self._at_exit()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _choose_ports_and_start(self) -> None:
        # Kafka must know its ports beforehand, so another process can take one in between.
        for _ in range(3):
            self._configure(*free_ports(3))
            self._format_storage()
            if self._start():
                return
            if "Address already in use" not in self._last_words():
                break
        raise ConfigError(f"Kafka did not start: {self._last_words()}")

    def _configure(self, broker_port: int, controller_port: int, sasl_port: int) -> None:
        self.bootstrap = f"127.0.0.1:{broker_port}"
        settings = _single_node(self.data_dir, broker_port, controller_port)
        if self._users:
            self.sasl_bootstrap = f"127.0.0.1:{sasl_port}"
            settings |= _secured(settings, self.sasl_bootstrap, self._users)
        settings |= self._settings
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self._folder / "server.properties").write_text("".join(lines))

    def _format_storage(self) -> None:
        shutil.rmtree(self.data_dir, ignore_errors=True)
        arguments = ("format", "--cluster-id", _cluster_id(), "--config")
        done = run_tool(self._command("kafka.tools.StorageTool", *arguments), timeout_s=self._timeout_s)
        if done.returncode != 0:
            raise ConfigError(f"Kafka refused its configuration: {(done.stdout + done.stderr)[-2000:]}")

    def _start(self) -> bool:
        started = time.monotonic()
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                self._command("kafka.Kafka"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        self._started.append(self._process)
        ready = wait_for_metadata(self.bootstrap, self.is_alive, self._timeout_s)
        self.start_seconds = time.monotonic() - started
        return ready

    def _command(self, main: str, *arguments: str) -> list[str]:
        properties = str(self._folder / "server.properties")
        options = (*_HEAP_OPTIONS, *self._jvm_options, *_QUIET_OPTIONS)
        return [str(self._java), *options, "-cp", f"{self._jars}/*", main, *arguments, properties]

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            _end_process(self._process, how)
            self._process = None

    def _last_words(self) -> str:
        return (
            self.log_file.read_text(errors="replace")[-2000:] if self.log_file.exists() else "it said nothing"
        )


def _single_node(data_dir: Path, broker_port: int, controller_port: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data_dir),
        # Its internal topics ask for three replicas unless told that there is one node.
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # A group of one consumer need not wait three seconds for others.
        "group.initial.rebalance.delay.ms": "0",
    }


def _secured(settings: Mapping[str, str], address: str, users: Mapping[str, str]) -> dict[str, str]:
    """One more listener, where users log in and permissions count."""
    name = "SASL_PLAINTEXT"
    modules = "org.apache.kafka.common.security"
    accounts = " ".join(f'user_{user}="{password}"' for user, password in users.items())
    return {
        **{key: f"{settings[key]},{name}://{address}" for key in ("listeners", "advertised.listeners")},
        "listener.security.protocol.map": f"{settings['listener.security.protocol.map']},{name}:{name}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        f"listener.name.{name.lower()}.plain.sasl.jaas.config": (
            f"{modules}.plain.PlainLoginModule required {accounts};"
        ),
        **{
            f"listener.name.{name.lower()}.scram-sha-{size}.sasl.jaas.config": (
                f"{modules}.scram.ScramLoginModule required;"
            )
            for size in (256, 512)
        },
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",  # the broker is anonymous to its controller
    }


def find_peer_java() -> Path:
    """The `java` that runs a peer; raises PeerUnavailable where there is none."""
    try:
        return find_java().runtime / "bin" / "java"
    except ConfigError as none_found:
        raise PeerUnavailable(str(none_found)) from none_found


def _cluster_id() -> str:
    """A random id in Kafka's spelling; one that starts with a dash would be taken for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def free_ports(count: int) -> Iterator[int]:
    """Loopback ports that nobody listens on at this moment."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
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
