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
        "", "Data folder or URL of `headrace run`, for views and pipelines; empty: only topics and groups."
    )
    listen: str = setting("127.0.0.1:8080", "Address and port to listen on; port 0 picks a free one.")
    allow_host: str = setting(
        "", "Additional host names that browsers may use, separated by commas: console.example.org."
    )
    users: str = setting(
        "", "File of tokens and roles, created by `headrace console token add`; empty: no login."
    )
    insecure: bool = setting(
        False, "Allow listening beyond loopback without users: anyone who can connect may do anything."
    )
    until_stdin_closes: bool = setting(
        False, "Also stop when standard input closes, as it does when the parent process dies."
    )
    commands: bool = setting(
        False,
        "Pass commands such as rebuild to the parent process, as lines of JSON on standard output.",
    )
    max_body_bytes: int = setting(8 * MIB, "Largest request body; a larger one is rejected with 413.")
    max_records: int = setting(10_000, "Maximum records in one write request.")
    max_rows: int = setting(10_000, "Maximum rows or records in one response; use pages for the rest.")
    max_scan_bytes: int = setting(32 * MIB, "Maximum bytes of log that one search reads before it answers.")
    max_wait_ms: int = setting(60_000, "Maximum time that a read may wait for a view to reflect a token.")
    max_connections: int = setting(1_000, "Maximum number of connections; further ones are asked to retry.")
    max_subscribers: int = setting(500, "Maximum number of subscriptions to changes and records.")
    event_bytes: int = setting(MIB, "Maximum bytes of records or changes combined into one event.")
    reader_buffer_bytes: int = setting(
        64 * 1024,
        "Maximum bytes buffered for the connection of one reader; the rest is sent as the reader takes it.",
    )
    max_buffered_bytes: int = setting(
        64 * MIB,
        "Maximum bytes of responses and events held for all readers, counting shared ones once; "
        "beyond it, the reader that has taken nothing for longest is disconnected.",
    )
    slow_reader_ms: int = setting(
        10_000, "A reader that takes nothing for this long is disconnected; it can resume where it was."
    )
    heartbeat_ms: int = setting(10_000, "How often a silent subscription sends a heartbeat.")
    max_refusals_audited: int = setting(
        20, "Rejected changes per minute, user and address that get an audit record of their own."
    )
    threads: int = setting(16, "Threads for calls that wait for the log or a disk.")
    max_waiting: int = setting(1_000, "Calls that may wait for such a thread; further ones get a 503.")
    question_timeout_ms: int = setting(
        300_000,
        "Maximum time for tracing a row or computing past states, in a process that the console starts.",
    )
    poll_ms: int = setting(50, "How often a view or topic with subscribers or waiting reads is checked.")

    def __post_init__(self) -> None:
        host, _ = host_and_port("listen", self.listen)
        if not (self.users or self.insecure or is_loopback(host)):
            raise ConfigError(
                f"listen={self.listen!r} is reachable from other machines, and requires no login; "
                "create tokens with `headrace console token add` and pass --users FILE, listen on 127.0.0.1, "
                "or pass --insecure to let everyone who can reach it do anything"
            )
        for name in _AT_LEAST_ONE:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")


_AT_LEAST_ONE = (
    *("max_body_bytes", "max_records", "max_rows", "max_scan_bytes", "max_connections", "max_subscribers"),
    *(
        "event_bytes",
        "reader_buffer_bytes",
        "max_buffered_bytes",
        "slow_reader_ms",
        "max_refusals_audited",
        "heartbeat_ms",
        "threads",
        "max_waiting",
        "poll_ms",
        "question_timeout_ms",
    ),
)
