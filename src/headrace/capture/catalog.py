"""The captures of a log: their declarations, the requests made of them, and their status.

Kept on the log itself, in the compacted topic `headrace-captures`: `NAME/spec`, `NAME/switch` and
`NAME/status`. The processes that run captures and those that ask about them share nothing but the log.
"""

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from headrace.capture.spec import CaptureSpec, parse_spec
from headrace.client import EARLIEST, LATEST, Connection, RawFetcher, producer
from headrace.client.topics import SILENT_LOGGER, TopicSettings, ensure_topics
from headrace.errors import RetriableError
from headrace.records import decode_columns

__all__ = ["CAPTURES_TOPIC", "Catalog", "Entry", "Switch", "declare_captures"]

CAPTURES_TOPIC = "headrace-captures"
_SETTINGS = TopicSettings(partitions=1, configs={"cleanup.policy": "compact"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """The last requests made of a capture. Resuming and reading tables again have ids: each is done once."""

    paused: bool = False
    resumed: str = ""
    request: str = ""
    tables: tuple[str, ...] = ()


@dataclass(slots=True)
class Entry:
    """What the log says about one capture."""

    spec: CaptureSpec | None = None
    switch: Switch = field(default_factory=Switch)
    status: Mapping[str, Any] | None = None


class Catalog:
    """Reads and writes the captures' records; `refresh` reads what is new. For one thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._fetcher = RawFetcher(connection)
        self._next = 0
        self._producer: Any = None
        self.entries: dict[str, Entry] = {}
        ensure_topics(connection, {CAPTURES_TOPIC: _SETTINGS})

    def refresh(self) -> dict[str, Entry]:
        """Every capture as the log now has it."""
        start = max(self._next, self._fetcher.offsets(CAPTURES_TOPIC, EARLIEST)[0])
        end = self._fetcher.offsets(CAPTURES_TOPIC, LATEST)[0]
        for run in self._fetcher.fetch(CAPTURES_TOPIC, 0, start, end):
            columns = decode_columns(run, columns=("key", "value"))
            for key, value in zip(columns["key"].to_pylist(), columns["value"].to_pylist(), strict=True):
                self._apply(key.decode(), value)
        self._next = end
        return {name: each for name, each in self.entries.items() if each.spec is not None}

    def add(self, spec: CaptureSpec) -> None:
        """Declares a capture, or replaces its declaration."""
        self._write({f"{spec.name}/spec": spec.to_json()})

    def pause(self, name: str) -> None:
        """Tells a capture to pause."""
        self._switch(name, replace(self._switch_of(name), paused=True))

    def resume(self, name: str) -> None:
        """Tells a capture to continue, even after it stopped with an error."""
        self._switch(name, replace(self._switch_of(name), paused=False, resumed=secrets.token_hex(8)))

    def resnapshot(self, name: str, tables: Sequence[str]) -> None:
        """Tells a capture to read tables again: all, if none is named."""
        told = replace(
            self._switch_of(name), paused=False, request=secrets.token_hex(8), tables=tuple(tables)
        )
        self._switch(name, told)

    def say(self, name: str, status: Mapping[str, Any]) -> None:
        """Publishes the status of a capture."""
        self._write({f"{name}/status": status})

    def remove(self, name: str) -> None:
        """Removes a capture; the process that runs it stops it."""
        self._write({f"{name}/spec": None, f"{name}/switch": None})

    def gone(self, name: str) -> None:
        """Records that no process runs a capture any longer."""
        self._write({f"{name}/status": None})

    def close(self) -> None:
        self._fetcher.close()

    def _switch_of(self, name: str) -> Switch:
        return self.entries.get(name, Entry()).switch

    def _switch(self, name: str, switch: Switch) -> None:
        self._write({f"{name}/switch": asdict(switch)})

    def _write(self, records: Mapping[str, Mapping[str, Any] | None]) -> None:
        if self._producer is None:
            self._producer = producer(self._connection, linger_ms=1, logger=SILENT_LOGGER)
        for key, value in records.items():
            encoded = None if value is None else orjson.dumps(value)
            self._producer.produce(CAPTURES_TOPIC, encoded, key.encode(), partition=0)
        if self._producer.flush(self._connection.retry_timeout_ms / 1000):
            raise RetriableError(f"{self._connection.bootstrap_servers} did not take what a capture was told")

    def _apply(self, key: str, value: bytes | None) -> None:
        name, _, part = key.rpartition("/")
        entry = self.entries.setdefault(name, Entry())
        said = None if value is None else orjson.loads(value)
        if part == "spec":
            entry.spec = None if said is None else parse_spec(said)
        elif part == "switch":
            entry.switch = Switch() if said is None else Switch(**{**said, "tables": tuple(said["tables"])})
        elif part == "status":
            entry.status = said


def declare_captures(captures: Mapping[str, CaptureSpec], connection: Connection) -> None:
    """Declares captures on the log; tables that are captured there under the same names stay captured."""
    if not captures:
        return
    with contextlib.closing(Catalog(connection)) as catalog:
        known = catalog.refresh()
        for name, spec in captures.items():
            catalog.add(spec.merged(known[name].spec if name in known else None))
