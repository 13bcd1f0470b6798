"""The source's options, as given to Spark's `.option(name, value)`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.client import Connection, Identity
from headrace.config import describe, setting
from headrace.errors import ConfigError
from headrace.streams.start import parse_start

__all__ = ["SourceOptions", "read_options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(Identity):
    """What to read from which log, and how much at once."""

    topic: str = setting("", "The topic to read; required.")
    bootstrap_servers: str = setting(
        "127.0.0.1:9092", "Brokers to connect to first, as host:port, separated by commas."
    )
    start: str = setting(
        "earliest",
        "Where a query without checkpoint starts: earliest, latest, a time such as 2026-01-31T12:00:00Z, "
        "or offsets such as 0:1200,1:1187.",
    )
    max_records_per_batch: int = setting(1_000_000, "Maximum offsets in one micro-batch; 0 means no limit.")
    max_bytes_per_batch: int = setting(
        256 << 20, "Maximum bytes of decoded records in one micro-batch; 0 means no limit."
    )
    max_records_per_task: int = setting(
        250_000, "Maximum offsets that one Spark task reads; a longer range is split into several tasks."
    )
    max_fetch_bytes: int = setting(8 << 20, "Bytes requested in one fetch.")
    retry_timeout_ms: int = setting(
        30_000, "How long to retry when the log cannot be reached or is not ready."
    )

    def connection(self) -> Connection:
        """How the source reaches the log."""
        return Connection(
            bootstrap_servers=self.bootstrap_servers,
            client_id="headrace-source",
            retry_timeout_ms=self.retry_timeout_ms,
            **self.identity_fields(),
        )


def read_options(given: Mapping[str, str]) -> SourceOptions:
    """Options from Spark's, whose names ignore case; raises ConfigError on an unknown or bad one."""
    known = {name: kind for name, kind, _, _ in describe(SourceOptions)}
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name.lower() not in known:
            raise ConfigError(f"the source has no option {name!r}; it has {', '.join(known)}")
        values[name.lower()] = _positive(name, text) if known[name.lower()] == "int" else text
    options = SourceOptions(**values)
    if options.max_records_per_task == 0 or options.max_fetch_bytes == 0:
        raise ConfigError("max_records_per_task and max_fetch_bytes must be greater than 0")
    if not options.topic:
        raise ConfigError('the source needs a topic: add .option("topic", "…")')
    parse_start(options.start)
    return options


def _positive(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise ConfigError(f"{name}={text!r} is not a whole number of 0 or more")
    return int(text)
