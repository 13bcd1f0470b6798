"""Reads the topic of a follower: its bounds, its records in order, and the cuts of its source."""

from collections import deque
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import NamedTuple, Self

import orjson

from headrace.client import EARLIEST, LATEST, Connection, RawFetcher, admin
from headrace.client.topics import SILENT_LOGGER, Log
from headrace.derived.state import TopicFacts
from headrace.errors import ConfigError
from headrace.records import decode_columns

__all__ = ["Cuts", "TopicRead", "TopicReader", "TopicRecord"]

_FETCH_BYTES = 4 << 20
_MOST_CUTS = 20_000
_TOMBSTONES_MS = 24 * 3600 * 1000


class TopicRecord(NamedTuple):
    """A record as the log has it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class TopicRead(NamedTuple):
    """Records in the order of each partition, and the positions behind them."""

    records: list[TopicRecord]
    positions: dict[int, int]


class Cuts:
    """Where the source's transactions end: positions at which no transaction is half visible. Pure."""

    def __init__(self) -> None:
        self._waiting: deque[dict[int, int]] = deque()

    def add(self, positions: Mapping[int, int]) -> None:
        """The next cut, in the order of the transaction topic."""
        self._waiting.append(dict(positions))
        if len(self._waiting) > _MOST_CUTS:  # any may be left out but the last: a batch may hold several
            self._waiting = deque([*self._waiting][::-1][::2][::-1])

    def furthest(self, reached: Mapping[int, int], most: int) -> dict[int, int] | None:
        """The last cut within `most` offsets, or the next one however far; None if none is behind `reached`.

        Cuts before what it returns are forgotten.
        """
        found: dict[int, int] | None = None
        while self._waiting:
            cut = {each: max(at, reached.get(each, 0)) for each, at in self._waiting[0].items()}
            ahead = sum(at - reached.get(each, 0) for each, at in cut.items())
            if found is not None and ahead > most:
                break
            self._waiting.popleft()
            found = cut if ahead else found
        if found is not None:
            self._waiting.appendleft(found)
        return found


class TopicReader:
    """Committed records of one topic, and of the topic of its cuts. For one thread."""

    def __init__(self, connection: Connection, topic: str, transactions: str = "") -> None:
        self.topic = topic
        self._connection = connection
        self._fetcher = RawFetcher(connection, max_bytes=_FETCH_BYTES)
        self._transactions = transactions
        self._cuts = Cuts()
        self._next_cut = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._fetcher.close()

    def facts(self) -> TopicFacts:
        """The topic as it is now; ConfigError if retention has taken rows that nothing brings back."""
        layout = self._fetcher.layout(self.topic)
        starts, ends = self._fetcher.offsets(self.topic, EARLIEST), self._fetcher.offsets(self.topic, LATEST)
        policy, kept_ms = self._cleanup()
        if "compact" not in policy and any(starts.values()):
            raise ConfigError(
                f"the topic {self.topic} is not compacted, and its oldest records are gone: rows that have "
                "not changed since are not there. Follow a compacted topic (cleanup.policy=compact)"
            )
        return TopicFacts(
            topic_id=str(layout.id),
            starts=starts,
            ends=ends,
            goal=self.goal({}, 1 << 62),
            tombstones_ms=kept_ms if "compact" in policy else None,
        )

    def ends(self) -> dict[int, int]:
        """The end of what is committed, of every partition."""
        return self._fetcher.offsets(self.topic, LATEST)

    def goal(self, reached: Mapping[int, int], most: int) -> dict[int, int]:
        """How far to read from `reached`, where no transaction of the source is half visible.

        The last cut within `most` offsets, or the next however far. Without a topic of cuts, or
        with one that retention has emptied, the end of what is committed.
        """
        if not self._transactions or not self._read_cuts():
            return self.ends()
        return self._cuts.furthest(reached, most) or dict(reached)

    def read(
        self, reached: Mapping[int, int], ends: Mapping[int, int], *, most_records: int, most_bytes: int
    ) -> TopicRead:
        """The next records up to `ends`, about as many as allowed; partitions one after the other."""
        records: list[TopicRecord] = []
        positions: dict[int, int] = {}
        size = 0
        for partition, end in ends.items():
            start = reached.get(partition, 0)
            for record in self.records(partition, start, end):
                if size >= most_bytes or len(records) >= most_records:
                    return TopicRead(records, {**positions, partition: record.offset})
                records.append(record)
                size += len(record.key or b"") + len(record.value or b"")
            positions[partition] = max(start, end)
        return TopicRead(records, positions)

    def records(self, partition: int, start: int, end: int) -> Iterator[TopicRecord]:
        """Every record of a partition from `start` up to `end`."""
        names = ("offset", "timestamp", "key", "value")
        for run in self._fetcher.fetch(self.topic, partition, start, end):
            columns = decode_columns(run, start_offset=start, end_offset=end, columns=names)
            times = columns["timestamp"].cast("int64").to_pylist()
            others = (columns[each].to_pylist() for each in ("offset", "key", "value"))
            for at_ms, offset, key, value in zip(times, *others, strict=True):
                yield TopicRecord(partition, offset, at_ms, key, value)

    def _read_cuts(self) -> bool:
        """Reads the cuts that are new; False if the topic of cuts has none at all."""
        topic = self._transactions
        first, end = self._fetcher.offsets(topic, EARLIEST)[0], self._fetcher.offsets(topic, LATEST)[0]
        start = max(self._next_cut, first)
        for run in self._fetcher.fetch(topic, 0, start, end):
            for value in decode_columns(run, columns=("value",))["value"].to_pylist():
                said = orjson.loads(value) if value is not None else {}
                of_topic = (said.get("offsets") or {}).get(self.topic)
                if of_topic:
                    self._cuts.add({int(each): int(at) for each, at in of_topic.items()})
        self._next_cut = end
        return first < end

    def _cleanup(self) -> tuple[str, int]:
        log = Log(admin(self._connection, logger=SILENT_LOGGER), self._connection.bootstrap_servers)
        found = log.topic_configs(self.topic)
        kept = found.get("delete.retention.ms")
        policy = found.get("cleanup.policy")
        return str(policy.value if policy else "delete"), int(kept.value if kept else _TOMBSTONES_MS)
