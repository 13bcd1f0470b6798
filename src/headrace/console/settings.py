"""What can be set of a console."""

import dataclasses

from headrace.addresses import host_and_port, is_loopback
from headrace.config import setting
from headrace.errors import ConfigError

__all__ = ["ConsoleSettings"]

MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """Settings of one console; memory follows from these, not from what clients send."""

    bootstrap: str = setting(
        "", "Brokers of the log, as host:port; empty: those of the data folder, else 127.0.0.1:9092."
    )
    data: str = setting(
        "", "Data folder of `headrace run`, for views and pipelines; empty: topics and groups alone."
    )
    listen: str = setting("127.0.0.1:8080", "Address and port to listen on; port 0 picks a free one.")
    allow_host: str = setting(
        "", "Further names under which browsers may reach it, separated by commas: console.example.org."
    )
    users: str = setting(
        "", "File of tokens and roles, made by `headrace console token add`; empty: no login."
    )
    insecure: bool = setting(
        False, "Let listen be beyond loopback without users: whoever reaches it may do everything."
    )
    until_stdin_closes: bool = setting(
        False, "Stop when standard input ends too, as it does when the process that started this one dies."
    )
    commands: bool = setting(
        False,
        "Pass commands such as rebuild to whoever started this process, as lines of JSON on its output.",
    )
    max_body_bytes: int = setting(8 * MIB, "Largest body of a request; a larger one is refused with 413.")
    max_records: int = setting(10_000, "Most records in one request that writes.")
    max_rows: int = setting(10_000, "Most rows or records in one answer; the rest comes by pages.")
    max_scan_bytes: int = setting(32 * MIB, "Most bytes of log that one search reads before it answers.")
    max_wait_ms: int = setting(60_000, "Longest that a read may wait for a view to reflect a token.")
    max_connections: int = setting(1_000, "Connections at once; further ones are told to come back.")
    max_subscribers: int = setting(500, "Subscriptions to changes and records at once.")
    event_bytes: int = setting(MIB, "Most bytes of records or changes gathered into one event.")
    slow_reader_ms: int = setting(
        10_000, "A reader that takes nothing for this long is cut off; it resumes where it was."
    )
    heartbeat_ms: int = setting(10_000, "How often a silent subscription sends a sign of life.")
    threads: int = setting(16, "Threads for whatever waits for the log or a disk.")
    max_waiting: int = setting(1_000, "Calls that may wait for such a thread; further ones are answered 503.")
    poll_ms: int = setting(50, "How often a view or topic with subscribers or waiting reads is looked at.")

    def __post_init__(self) -> None:
        host, _ = host_and_port("listen", self.listen)
        if not (self.users or self.insecure or is_loopback(host)):
            raise ConfigError(
                f"listen={self.listen!r} is reachable from outside and nobody has to say who they are; "
                "make tokens with `headrace console token add` and give --users FILE, listen on 127.0.0.1, "
                "or give --insecure if everybody who can reach it may do everything"
            )
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")


_AT_LEAST_ONE = (
    *("max_body_bytes", "max_records", "max_rows", "max_scan_bytes", "max_connections", "max_subscribers"),
    *("event_bytes", "slow_reader_ms", "heartbeat_ms", "threads", "max_waiting", "poll_ms"),
)
