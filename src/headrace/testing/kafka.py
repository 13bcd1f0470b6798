"""A real Kafka, to compare with: what "right" is, and how fast the others are.

`KafkaServer` runs one broker, controller included, in a process of its own on
loopback ports; `KafkaCluster` runs several, with every record on each of three:

    with KafkaServer({"message.max.bytes": "20000000"}) as kafka:
        Producer({"bootstrap.servers": kafka.bootstrap})

Data is in temporary folders. Where a Kafka cannot be had (no Maven, no registry, no
Java) both raise `PeerUnavailable`, whose message is the reason to skip with. A Kafka
that is there and does not start is another matter: ConfigError, with its last words.
"""

import signal
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from headrace.errors import ConfigError
from headrace.testing.kafka_process import (
    KAFKA_VERSION,
    KafkaProcess,
    cluster_id,
    fetch_kafka,
    find_peer_java,
    free_ports,
    node_settings,
    wait_for_metadata,
    wait_in_sync,
)
from headrace.testing.maven import PeerUnavailable, run_tool

__all__ = [
    "KAFKA_VERSION",
    "KafkaCluster",
    "KafkaServer",
    "PeerUnavailable",
    "fetch_kafka",
    "find_peer_java",
    "free_ports",
    "wait_for_metadata",
]

_TIMEOUT_S = 180.0
_ALONE = {
    # Its internal topics ask for three replicas unless told that there is one node.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
_REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    # Fewer than the 50 of the default: every one is a replica that each of the three keeps and elects.
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
}


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
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._settings = dict(settings or {})
        self._users = dict(users or {})
        self._timeout_s = timeout_s
        self._process = KafkaProcess(heap="1G", quick=quick, timeout_s=timeout_s)
        self.data_dir, self.log_file = self._process.data_dir, self._process.log_file
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
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def rss_bytes(self) -> int:
        """Resident memory of the broker's process."""
        return int(run_tool(["ps", "-o", "rss=", "-p", str(self.pid)], timeout_s=10).stdout) * 1024

    def kill(self) -> None:
        """Ends the process without a chance to tidy up, as `kill -9` does; the data stays."""
        self._process.end(signal.SIGKILL)

    def restart(self) -> None:
        """Ends the process if it runs, in good order, and starts it on the same data and ports."""
        self._process.end(signal.SIGTERM)
        if not self._start():
            raise ConfigError(f"Kafka did not start again: {self._process.last_words()}")

    def stop(self) -> None:
        """Ends the process and removes its data; harmless when repeated."""
        self._process.end(signal.SIGTERM)
        self._process.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _choose_ports_and_start(self) -> None:
        # Kafka must know its ports beforehand, so another process can take one in between.
        for _ in range(3):
            self._process.format(self._configured(*free_ports(3)), cluster_id())
            if self._start():
                return
            if not _is_port_taken(self._process):
                break
        raise ConfigError(f"Kafka did not start: {self._process.last_words()}")

    def _configured(self, broker_port: int, controller_port: int, sasl_port: int) -> dict[str, str]:
        self.bootstrap = f"127.0.0.1:{broker_port}"
        settings = node_settings(self.data_dir, "127.0.0.1", broker_port, controller_port) | _ALONE
        if self._users:
            self.sasl_bootstrap = f"127.0.0.1:{sasl_port}"
            settings |= _secured(settings, self.sasl_bootstrap, self._users)
        return settings | self._settings

    def _start(self) -> bool:
        started = time.monotonic()
        self._process.spawn()
        ready = wait_for_metadata(self.bootstrap, self.is_alive, self._timeout_s)
        self.start_seconds = time.monotonic() - started
        return ready


class KafkaCluster:
    """Three brokers, every one a controller as well, with each record on all of them.

    Started by the constructor, which returns once every broker is known. Topics have three
    replicas, two of which must have a record before it is acknowledged. Broker N is in rack-N, and
    serves readers of its rack from its own replica. `host` is the address of this machine on which they
    listen. Brokers are numbered from 1; the processes end with `stop`, with the `with` block, and at the
    latest with the interpreter.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        host: str = "127.0.0.1",
        nodes: int = 3,
        heap: str = "320m",
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._settings = dict(settings or {})
        self._host, self._timeout_s = host, timeout_s
        self._processes: dict[int, KafkaProcess] = {}
        self._addresses: dict[int, str] = {}
        try:
            for node in range(1, nodes + 1):
                self._processes[node] = KafkaProcess(heap=heap, quick=True, timeout_s=timeout_s)
            self._choose_ports_and_start()
        except BaseException:
            self.stop()
            raise

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(self._processes)

    @property
    def bootstrap(self) -> str:
        """All brokers, separated by commas."""
        return ",".join(self._addresses.values())

    def address(self, node: int) -> str:
        """The host and port of one broker."""
        return self._addresses[node]

    def pid(self, node: int) -> int:
        """A broker's process id; raises when it is not running."""
        return self._processes[node].pid

    def is_alive(self, node: int) -> bool:
        return self._processes[node].is_alive()

    def kill(self, node: int) -> None:
        """Ends one broker without a chance to tidy up, as `kill -9` does; its data stays."""
        self._processes[node].end(signal.SIGKILL)

    def restart(self, node: int) -> None:
        """Ends one broker in good order if it runs, and starts it again; returns when it answers clients.

        Its replicas may be behind for a while yet; see `wait_in_sync`.
        """
        process = self._processes[node]
        process.end(signal.SIGTERM)
        process.spawn()
        if not self._wait(self.address(node)):
            raise ConfigError(f"broker {node} of Kafka did not start again: {process.last_words()}")

    def wait_in_sync(self) -> None:
        """Waits until every partition has all of its replicas in sync; raises TimeoutError."""
        wait_in_sync(self.bootstrap, self._timeout_s)

    def stop(self) -> None:
        """Ends all and removes their data; harmless when repeated."""
        for process in self._processes.values():
            process.end(signal.SIGKILL)
            process.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _choose_ports_and_start(self) -> None:
        for _ in range(3):
            self._configure()
            for process in self._processes.values():  # a quorum: none is ready before the others are there
                process.spawn()
            if self._wait(self.bootstrap):
                return
            if not any(_is_port_taken(each) for each in self._processes.values()):
                break
            for process in self._processes.values():
                process.end(signal.SIGKILL)
        words = [each.last_words() for each in self._processes.values() if not each.is_alive()]
        raise ConfigError(f"Kafka did not start: {words}")

    def _configure(self) -> None:
        ports = list(free_ports(2 * len(self._processes), self._host))
        listeners = list(zip(self._processes, ports[::2], ports[1::2], strict=True))
        voters = ",".join(f"{node}@{self._host}:{controller}" for node, _, controller in listeners)
        cluster = cluster_id()
        for node, broker, controller in listeners:
            self._addresses[node] = f"{self._host}:{broker}"
            process = self._processes[node]
            settings = node_settings(
                process.data_dir, self._host, broker, controller, node=node, voters=voters
            )
            process.format(settings | _REPLICATED | {"broker.rack": f"rack-{node}"} | self._settings, cluster)

    def _wait(self, address: str) -> bool:
        """Waits until the broker there knows all that are not killed; False if one of them has ended."""
        running = [each for each in self._processes.values() if each.is_alive()]
        return wait_for_metadata(
            address,
            lambda: all(each.is_alive() for each in running),
            self._timeout_s,
            brokers=len(running),
        )


def _is_port_taken(process: KafkaProcess) -> bool:
    return "Address already in use" in process.last_words()


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
