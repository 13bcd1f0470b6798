"""The one place where the command line makes clients of the log.

Before a client is made the bootstrap addresses are tried with a plain
connection, because a client library retries silently for a long time what a
person wants to hear at once: nothing listens there. Clients are silent: no log
lines, only errors that we word.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from headrace.cli.failures import UsageError
from headrace.cli.identity import connection_to, identity
from headrace.client.connect import Connection, UnreachableError
from headrace.client.topics import ANSWER_TIMEOUT_S, FIRST_ANSWER_TIMEOUT_S, Log
from headrace.clock import SystemClock
from headrace.errors import RequestError

__all__ = [
    "Clients",
    "addresses",
    "new_admin",
    "new_log",
    "new_producer",
    "new_reader",
    "reachable",
    "require_listener",
]

CLIENT_ID = "headrace-cli"
CONNECT_TIMEOUT_S = 3.0

OnError = Callable[[KafkaError], None]


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Host and port of every entry of `HOST:PORT[,HOST:PORT…]`; raises UsageError."""
    found = []
    for entry in filter(None, (part.strip() for part in bootstrap.split(","))):
        host, colon, port = entry.rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
            raise UsageError(f"--bootstrap {entry!r} is not HOST:PORT, such as 127.0.0.1:9092")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise UsageError("--bootstrap is empty; pass HOST:PORT, such as 127.0.0.1:9092")
    return found


def require_listener(bootstrap: str) -> tuple[str, int]:
    """The first address that accepts a connection; raises UnreachableError when none does."""
    causes = []
    for host, port in addresses(bootstrap):
        try:
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            causes.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return host, port
    raise UnreachableError(
        f"nothing is listening at {bootstrap} ({'; '.join(causes)}): "
        "start a broker with `headrace broker`, or pass another address with --bootstrap"
    )


def new_admin(bootstrap: str) -> AdminClient:
    """A client for questions and changes; raises UnreachableError at once when nothing listens."""
    require_listener(bootstrap)
    problems: list[KafkaError] = []
    client = AdminClient(_base(bootstrap, problems.append))
    if identity().client_properties():
        _require_login(client, problems)
    return client


def new_log(bootstrap: str) -> Log:
    """The log's topics, groups and configurations; raises as `new_admin` does."""
    return Log(new_admin(bootstrap), bootstrap)


def _require_login(client: AdminClient, problems: list[KafkaError]) -> None:
    """Raises RequestError when the broker is not to be trusted or refuses the user.

    The library would go on trying, and end by saying that nobody answers.
    """
    deadline = SystemClock().monotonic_ms() + int(1000 * FIRST_ANSWER_TIMEOUT_S)
    while SystemClock().monotonic_ms() < deadline:
        try:
            client.list_topics(timeout=0.5)
        except KafkaException:
            client.poll(0)
        else:
            return
        for problem in problems:
            if _is_refusal(problem):
                cause = problem.str().partition(": ")[2].partition(" (after")[0]
                raise RequestError(
                    f"{cause}; check --user, the password, --tls-ca and --client-certificate",
                    code=problem.code(),
                )


def _is_refusal(problem: KafkaError) -> bool:
    """Since TLS 1.3 a client's certificate is looked at after the connection is made: the library then
    takes the alert for an error of the network, of whose code there is only one: so its text is read.
    """
    return problem.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) or "SSL alert" in problem.str()


def new_producer(bootstrap: str, **extra: Any) -> Producer:
    """A producer that waits for every record to be durable and makes no duplicates on retry."""
    require_listener(bootstrap)
    return Producer(
        {
            **_base(bootstrap),
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            **extra,
        }
    )


def new_reader(bootstrap: str, *, on_error: OnError = lambda _: None, **extra: Any) -> Consumer:
    """A consumer for `assign` only: joins no group, commits nothing, creates no topic.

    Falling off the log is an error it hears of, never a silent skip.
    """
    require_listener(bootstrap)
    return Consumer(
        {
            **_base(bootstrap, on_error),
            # The library demands a group's name; nothing is ever committed under it.
            "group.id": CLIENT_ID,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "allow.auto.create.topics": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            **extra,
        }
    )


def reachable(bootstrap: str) -> Connection:
    """How to reach a log over our own connections; raises UnreachableError at once when nothing listens."""
    require_listener(bootstrap)
    return connection_to(bootstrap, client_id=CLIENT_ID, request_timeout_ms=int(1000 * ANSWER_TIMEOUT_S))


@dataclass(frozen=True, slots=True)
class Clients:
    """Readers and producers of one log, for code that makes them later."""

    bootstrap: str

    def reader(self, **properties: Any) -> Consumer:
        return new_reader(self.bootstrap, **properties)

    def producer(self, **properties: Any) -> Producer:
        return new_producer(self.bootstrap, **properties)


def _base(bootstrap: str, on_error: OnError = lambda _: None) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": CLIENT_ID,
        "log_level": 0,
        "error_cb": on_error,
        "socket.connection.setup.timeout.ms": 5_000,
        # A broker that restarts under a live tail should be found again quickly.
        "reconnect.backoff.max.ms": 1_000,
        **identity().client_properties(),
    }
