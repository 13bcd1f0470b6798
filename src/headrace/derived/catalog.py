"""The followers of a log: their declarations, the requests made of them, and their status.

Kept on the log itself, in the compacted topic `headrace-followers`: `NAME/spec`, `NAME/rebuild` and
`NAME/status`. The processes that run followers and those that ask about them share nothing but the log.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from headrace.client import EARLIEST, LATEST, Connection, RawFetcher, producer
from headrace.client.topics import SILENT_LOGGER, TopicSettings, ensure_topics
from headrace.derived.spec import Follow, parse_follow
from headrace.errors import RetriableError
from headrace.records import decode_columns

__all__ = ["FOLLOWERS_TOPIC", "FollowCatalog", "FollowEntry"]

FOLLOWERS_TOPIC = "headrace-followers"
_SETTINGS = TopicSettings(partitions=1, configs={"cleanup.policy": "compact"})


@dataclass(slots=True)
class FollowEntry:
    """What the log says about one follower. `rebuild` is the id of the last request; each is done once."""

    spec: Follow | None = None
    rebuild: str = ""
    status: Mapping[str, Any] | None = None


class FollowCatalog:
    """Reads and writes the followers' records; `refresh` reads what is new. For one thread."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._fetcher = RawFetcher(connection)
        self._next = 0
        self._producer: Any = None
        self.entries: dict[str, FollowEntry] = {}
        ensure_topics(connection, {FOLLOWERS_TOPIC: _SETTINGS})

    def refresh(self) -> dict[str, FollowEntry]:
        """Every follower as the log now has it."""
        start = max(self._next, self._fetcher.offsets(FOLLOWERS_TOPIC, EARLIEST)[0])
        end = self._fetcher.offsets(FOLLOWERS_TOPIC, LATEST)[0]
        for run in self._fetcher.fetch(FOLLOWERS_TOPIC, 0, start, end):
            columns = decode_columns(run, columns=("key", "value"))
            for key, value in zip(columns["key"].to_pylist(), columns["value"].to_pylist(), strict=True):
                self._apply(key.decode(), value)
        self._next = end
        return {name: each for name, each in self.entries.items() if each.spec is not None}

    def add(self, follow: Follow) -> None:
        """Declares a follower, or replaces its declaration."""
        self._write({f"{follow.name}/spec": follow.to_json()})

    def rebuild(self, name: str) -> str:
        """Tells a follower to compare all its rows with the log; the id of that request."""
        request = secrets.token_hex(8)
        self._write({f"{name}/rebuild": request})
        return request

    def say(self, name: str, status: Mapping[str, Any]) -> None:
        """Publishes the status of a follower."""
        self._write({f"{name}/status": status})

    def remove(self, name: str) -> None:
        """Removes a follower; the process that runs it stops it. Its target stays as it is."""
        self._write({f"{name}/spec": None, f"{name}/rebuild": None, f"{name}/status": None})

    def close(self) -> None:
        self._fetcher.close()

    def _write(self, records: Mapping[str, Any]) -> None:
        if self._producer is None:
            self._producer = producer(self._connection, linger_ms=1, logger=SILENT_LOGGER)
        for key, value in records.items():
            encoded = None if value is None else orjson.dumps(value)
            self._producer.produce(FOLLOWERS_TOPIC, encoded, key.encode(), partition=0)
        if self._producer.flush(self._connection.retry_timeout_ms / 1000):
            raise RetriableError(
                f"{self._connection.bootstrap_servers} did not take what a follower was told"
            )

    def _apply(self, key: str, value: bytes | None) -> None:
        name, _, part = key.rpartition("/")
        entry = self.entries.setdefault(name, FollowEntry())
        said = None if value is None else orjson.loads(value)
        if part == "spec":
            entry.spec = None if said is None else parse_follow(said)
        elif part == "rebuild":
            entry.rebuild = said or ""
        elif part == "status":
            entry.status = said
