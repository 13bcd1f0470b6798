"""Raw record batches for a range of offsets, from the brokers that lead the partitions."""

import contextlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from headrace.client.batches import (
    AbortedRecords,
    BatchRuns,
    batch_sizes,
    bounded_runs,
    visible_runs,
)
from headrace.client.connect import Channel, Connection
from headrace.client.connect.brokers import Brokers, check_code
from headrace.errors import RequestError, RetriableError
from headrace.wire import Api, ErrorCode, Fields

__all__ = ["EARLIEST", "LATEST", "OffsetsGone", "RawFetcher", "TopicLayout"]

EARLIEST = -2
LATEST = -1

# One version of each, which Kafka has spoken since 3.1: topics have ids, so a topic that
# was deleted and created again is never taken for the old one.
_VERSIONS = {Api.METADATA: 12, Api.LIST_OFFSETS: 7, Api.FETCH: 13}

_FETCH_WAIT_MS = 500
_RUN_BYTES = 64 << 20  # decoded
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLayout:
    """A topic's id and which broker leads each of its partitions."""

    name: str
    id: uuid.UUID
    leaders: Mapping[int, int]


class OffsetsGone(RequestError):  # noqa: N818 - what has happened, not what is wrong
    """The log no longer, or not yet, has the offset that was `asked` for; it holds `first` up to `end`."""

    def __init__(self, message: str, *, asked: int, first: int, end: int) -> None:
        super().__init__(message, code=ErrorCode.offset_out_of_range)
        self.asked = asked
        self.first = first
        self.end = end


class RawFetcher:
    """Fetches the layout, offsets and bytes of topics; sees committed records only.

    Synchronous, for one thread. A broker that cannot be reached or is not ready is
    retried for `retry_timeout_ms`, with fresh metadata each time; then the last
    RetriableError is raised. Use it as a context manager, or `close` it. With `committed=False` it
    fetches what is not committed yet, or was aborted, as well.
    """

    def __init__(self, connection: Connection, *, max_bytes: int = 8 << 20, committed: bool = True) -> None:
        self._max_bytes = max_bytes
        self._level = {"isolation_level": _READ_COMMITTED if committed else _READ_UNCOMMITTED}
        self._layouts: dict[str, TopicLayout] = {}
        self._rack = connection.rack()
        self._nearer: dict[tuple[str, int], int] = {}  # replicas to read from, by what the leader said
        self._brokers = Brokers(connection, _VERSIONS, forget=self._forget)
        self._asked: tuple[tuple[str, int, int], Channel] | None = None  # ahead, by `fetch`

    def layout(self, topic: str) -> TopicLayout:
        """The topic as it is now; raises RequestError if it does not exist."""
        self._layouts.pop(topic, None)
        return self._brokers.retrying(lambda: self._layout(topic))

    def layouts(self, topics: Iterable[str]) -> dict[str, TopicLayout]:
        """Several topics as they are now, in one request; without those that are missing or hidden."""
        wanted = sorted(set(topics))
        return self._brokers.retrying(lambda: self._ask_layouts(wanted)) if wanted else {}

    def offsets(self, topic: str, when: int, *, committed: bool = True) -> dict[int, int]:
        """An offset of every partition: LATEST (the end of what is committed), EARLIEST, or of a time in ms.

        For a time, that of the first record at or after it, or the end if there is none. With
        `committed=False`, records that are not committed yet count, too.
        """
        found = self._brokers.retrying(lambda: self._list_offsets(topic, when, committed=committed))
        if when >= 0 and -1 in found.values():
            ends = self.offsets(topic, LATEST)
            found = {partition: ends[partition] if at == -1 else at for partition, at in found.items()}
        return found

    def fetch(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        topic_id: uuid.UUID | None = None,
        ahead: bool = False,
    ) -> Iterator[memoryview]:
        """Runs of whole, checked record batches with every visible record from `start` up to `end`.

        A run is bounded by what it takes decoded, however well it is compressed. The first and
        the last batch may reach beyond the range. Raises OffsetsGone if `start` is no longer on
        the log, RequestError if the topic does not have that id: nothing is skipped silently.

        With `ahead`, the next bytes are requested before a run is yielded, so that the broker
        works while the caller does. Read it to the end: any other request before that makes
        the fetcher reconnect.
        """
        while start < end:
            found = self._brokers.retrying(lambda: self._fetch(topic, partition, start, end, topic_id))  # noqa: B023
            start = found.next_offset
            if ahead and start < end:
                self._ask_ahead(topic, partition, start)
            for run in found.runs:
                yield from bounded_runs(run, _RUN_BYTES) if found.is_compressed else (run,)

    def batch_sizes(
        self, topic: str, starts: Mapping[int, int], max_bytes: int
    ) -> dict[int, list[tuple[int, int, int]]]:
        """The next record batches of partitions, as (base offset, next offset, decoded size in bytes).

        Those within the next `max_bytes` of each partition's log, which need not be all; markers
        and aborted records count. Of compressed batches the size is an estimate. Partitions that
        do not have their offset are left out.
        """
        return self._brokers.retrying(lambda: self._batch_sizes(topic, starts, max_bytes))

    def close(self) -> None:
        """Closes every connection; the fetcher may be used again, and reconnects."""
        self._brokers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- one attempt each ---------------------------------------------------------------------

    def _ask_layouts(self, topics: Sequence[str]) -> dict[str, TopicLayout]:
        names = [{"topic_id": None, "name": topic} for topic in topics]
        fields = {"topics": names, "allow_auto_topic_creation": False}
        answer = self._brokers.ask(self._brokers.any(), Api.METADATA, fields)
        self._brokers.learn(answer.brokers)
        found = {}
        for each in answer.topics:
            with contextlib.suppress(RequestError, RetriableError):
                found[each.name] = _read_layout(each.name, each)
        self._layouts.update(found)
        return found

    def _layout(self, topic: str) -> TopicLayout:
        if topic not in self._layouts:
            fields = {"topics": [{"topic_id": None, "name": topic}], "allow_auto_topic_creation": False}
            answer = self._brokers.ask(self._brokers.any(), Api.METADATA, fields)
            self._brokers.learn(answer.brokers)
            self._layouts[topic] = _read_layout(topic, answer.topics[0])
        return self._layouts[topic]

    def _list_offsets(self, topic: str, when: int, *, committed: bool = True) -> dict[int, int]:
        layout = self._layout(topic)
        by_leader: dict[int, list[int]] = {}
        for partition, leader in layout.leaders.items():
            by_leader.setdefault(leader, []).append(partition)
        found: dict[int, int] = {}
        for leader, partitions in by_leader.items():
            wanted = [{"partition_index": each, "timestamp": when} for each in partitions]
            level = _READ_COMMITTED if committed else _READ_UNCOMMITTED
            topics = [{"name": topic, "partitions": wanted}]
            fields = {"replica_id": -1, "isolation_level": level, "topics": topics}
            answer = self._brokers.ask(self._brokers.node(leader), Api.LIST_OFFSETS, fields)
            for each in answer.topics[0].partitions:
                check_code(each.error_code, f"{topic}-{each.partition_index}: offsets")
                found[each.partition_index] = each.offset
        return dict(sorted(found.items()))

    def _batch_sizes(
        self, topic: str, starts: Mapping[int, int], max_bytes: int
    ) -> dict[int, list[tuple[int, int, int]]]:
        layout = self._layout(topic)
        by_leader: dict[int, dict[int, int]] = {}
        for partition, start in starts.items():
            if partition in layout.leaders:
                by_leader.setdefault(layout.leaders[partition], {})[partition] = start
        found: dict[int, list[tuple[int, int, int]]] = {}
        for leader, wanted in by_leader.items():
            fields = _FETCH | _wanted(layout, wanted, max_bytes)
            answer = self._brokers.ask(self._brokers.node(leader), Api.FETCH, fields, wait_ms=_FETCH_WAIT_MS)
            check_code(answer.error_code, topic)
            for data in (each for response in answer.responses for each in response.partitions):
                if data.error_code != ErrorCode.offset_out_of_range:
                    check_code(data.error_code, f"{topic}-{data.partition_index}")
                    found[data.partition_index] = batch_sizes(memoryview(data.records or b""))
        return found

    def _fetch(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        topic_id: uuid.UUID | None,
    ) -> BatchRuns:
        layout = self._layout(topic)
        _check_identity(layout, topic_id)
        if partition not in layout.leaders:
            raise RequestError(f"{topic} has no partition {partition}; it has {len(layout.leaders)}", code=3)
        if self._asked is not None and self._asked[0] == (topic, partition, start):
            channel, self._asked = self._asked[1], None
        else:
            channel = self._ask(layout, partition, start)
        answer = channel.answer(Api.FETCH, _VERSIONS[Api.FETCH], wait_ms=_FETCH_WAIT_MS)
        check_code(answer.error_code, f"{topic}-{partition}")
        data = answer.responses[0].partitions[0]
        if self._is_redirected(topic, data):
            return self._fetch(topic, partition, start, end, topic_id)
        if data.error_code == ErrorCode.offset_out_of_range:
            raise self._out_of_range(topic, partition, start)
        check_code(data.error_code, f"{topic}-{partition}")
        return _progress(data, f"{topic}-{partition}", start, end)

    def _ask(self, layout: TopicLayout, partition: int, start: int) -> Channel:
        node = self._nearer.get((layout.name, partition), layout.leaders[partition])
        channel = self._brokers.node(node)
        wanted = _wanted(layout, {partition: start}, self._max_bytes)
        channel.ask(Api.FETCH, _VERSIONS[Api.FETCH], _FETCH | wanted | self._level | {"rack_id": self._rack})
        return channel

    def _is_redirected(self, topic: str, data: Fields) -> bool:
        """Whether to ask another broker: a replica that the leader names, or the leader itself again.

        A replica may be behind, or not keep what the leader keeps: what it lacks is asked of the leader.
        """
        place = topic, data.partition_index
        if data.preferred_read_replica >= 0 and place not in self._nearer:
            self._nearer[place] = data.preferred_read_replica
            return True
        if place in self._nearer and data.error_code == ErrorCode.offset_out_of_range:
            del self._nearer[place]
            self._rack = ""
            return True
        return False

    def _ask_ahead(self, topic: str, partition: int, start: int) -> None:
        """Sends the next request; that the broker is gone is noticed when the response is read."""
        with contextlib.suppress(RetriableError):
            channel = self._ask(self._layout(topic), partition, start)
            self._asked = (topic, partition, start), channel

    def _forget(self) -> None:
        self._layouts.clear()
        self._nearer.clear()
        self._asked = None

    def _out_of_range(self, topic: str, partition: int, start: int) -> OffsetsGone:
        first = self._list_offsets(topic, EARLIEST)[partition]
        last = self._list_offsets(topic, LATEST)[partition]
        what = "were removed before they were read" if start < first else "are not there"
        return OffsetsGone(
            f"{topic}-{partition}: records from offset {start} {what}: the log now holds {first} to {last}. "
            "Start again from a position inside, or keep records longer (retention.ms, retention.bytes)",
            asked=start,
            first=first,
            end=last,
        )


_FETCH: dict[str, Any] = {
    "replica_id": -1,
    "max_wait": _FETCH_WAIT_MS,
    "min_bytes": 1,
    "isolation_level": _READ_COMMITTED,
    "session_id": 0,
    "session_epoch": -1,  # no fetch session: each request is complete
}
_FETCH_PARTITION: dict[str, Any] = {
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "log_start_offset": -1,
}


def _wanted(layout: TopicLayout, starts: Mapping[int, int], max_bytes: int) -> dict[str, Any]:
    """The part of a fetch request that names partitions and their offsets; `max_bytes` is per partition."""
    wanted = [
        _FETCH_PARTITION | {"partition": each, "fetch_offset": start, "partition_max_bytes": max_bytes}
        for each, start in starts.items()
    ]
    return {
        "max_bytes": max_bytes * len(wanted),
        "topics": [{"topic_id": layout.id, "partitions": wanted}],
    }


def _read_layout(topic: str, found: Fields) -> TopicLayout:
    if found.error_code == ErrorCode.unknown_topic_or_partition:
        raise RequestError(
            f"there is no topic {topic!r}; create it (`headrace topics create {topic}`) or correct the name",
            code=found.error_code,
        )
    check_code(found.error_code, topic)
    for each in found.partitions:
        check_code(each.error_code, f"{topic}-{each.partition_index}")
    leaders = {each.partition_index: each.leader_id for each in found.partitions}
    return TopicLayout(name=topic, id=found.topic_id, leaders=dict(sorted(leaders.items())))


def _check_identity(layout: TopicLayout, topic_id: uuid.UUID | None) -> None:
    if topic_id is not None and layout.id != topic_id:
        raise RequestError(
            f"topic {layout.name!r} was deleted and created again (id {topic_id}, now {layout.id}): "
            "the offsets of the old one are meaningless on the new. Start over, with an empty checkpoint",
            code=ErrorCode.inconsistent_topic_id,
        )


def _progress(data: Fields, where: str, start: int, end: int) -> BatchRuns:
    """The runs of a fetch; RetriableError if it returned nothing although the range has not ended."""
    aborted = [
        AbortedRecords(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
    ]
    found = visible_runs(memoryview(data.records or b""), aborted, start, end)
    if found.next_offset <= start:
        raise RetriableError(
            f"{where}: no records from offset {start} although {end} should be the end; "
            f"the log is readable up to {data.last_stable_offset} (high watermark {data.high_watermark})"
        )
    return found
