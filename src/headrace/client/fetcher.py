"""Raw record batches for a range of offsets, from whichever broker leads the partition."""

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from headrace.client.batches import AbortedTransaction, Runs, batch_sizes, visible_runs
from headrace.client.brokers import Brokers, check_code
from headrace.client.channel import Channel
from headrace.client.connection import Connection
from headrace.errors import RequestError, RetriableError
from headrace.wire import Api, ErrorCode, Fields

__all__ = ["EARLIEST", "LATEST", "OffsetsGone", "RawFetcher", "TopicLayout"]

EARLIEST = -2
LATEST = -1

# One version of each, which Kafka has spoken since 3.1: topics have ids, so a topic that
# was deleted and created again is never taken for the old one.
_VERSIONS = {Api.METADATA: 12, Api.LIST_OFFSETS: 7, Api.FETCH: 13}

_FETCH_WAIT_MS = 500
_READ_COMMITTED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLayout:
    """A topic's id and which broker leads each of its partitions."""

    name: str
    id: uuid.UUID
    leaders: Mapping[int, int]


class OffsetsGone(RequestError):  # noqa: N818 - what has happened, not what is wrong
    """The log no longer, or not yet, has the offset `asked` for; it holds `first` up to `end`."""

    def __init__(self, message: str, *, asked: int, first: int, end: int) -> None:
        super().__init__(message, code=ErrorCode.offset_out_of_range)
        self.asked = asked
        self.first = first
        self.end = end


class RawFetcher:
    """Asks a log for its layout, its offsets and its bytes; sees committed records only.

    Synchronous, for one thread. A broker that cannot be reached or is not ready is
    tried again for `retry_timeout_ms`, with fresh metadata each time; then the last
    RetriableError comes out. Use as a context manager, or `close` it.
    """

    def __init__(self, connection: Connection, *, max_bytes: int = 8 << 20) -> None:
        self._max_bytes = max_bytes
        self._layouts: dict[str, TopicLayout] = {}
        self._brokers = Brokers(connection, _VERSIONS, forget=self._forget)
        self._asked: tuple[tuple[str, int, int], Channel] | None = None  # ahead, by `fetch`

    def layout(self, topic: str) -> TopicLayout:
        """The topic as it is now; raises RequestError if it does not exist."""
        self._layouts.pop(topic, None)
        return self._brokers.retrying(lambda: self._layout(topic))

    def offsets(self, topic: str, when: int) -> dict[int, int]:
        """An offset of every partition: LATEST (the end of what is committed), EARLIEST, or of a time in ms.

        For a time, it is the first record at or after it; the end where there is none.
        """
        found = self._brokers.retrying(lambda: self._list_offsets(topic, when))
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
        """Runs of whole, checked record batches that hold every visible record from `start` up to `end`.

        The first and the last batch may reach beyond the range. Raises OffsetsGone if
        `start` is no longer on the log, RequestError if the topic is not the one of
        that id: nothing is skipped in silence.

        With `ahead` the next bytes are asked for before a run is handed out, so that the
        broker works while the caller does. Best read to the end: whatever else is asked of
        the fetcher before that costs it its connection, and a moment.
        """
        while start < end:
            found = self._brokers.retrying(lambda: self._fetch(topic, partition, start, end, topic_id))  # noqa: B023
            start = found.next_offset
            if ahead and start < end:
                self._ask_ahead(topic, partition, start)
            yield from found.runs

    def batch_sizes(
        self, topic: str, starts: Mapping[int, int], max_bytes: int
    ) -> dict[int, list[tuple[int, int, int]]]:
        """The next record batches of partitions, as (base offset, next offset, bytes of log).

        As many as stand in `max_bytes` of each partition, which need not be all that there
        are; markers, and what was aborted, count. Partitions that do not have their offset
        are left out.
        """
        return self._brokers.retrying(lambda: self._batch_sizes(topic, starts, max_bytes))

    def close(self) -> None:
        """Closes every connection; the fetcher may be used again, and connects anew."""
        self._brokers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- one attempt each ---------------------------------------------------------------------

    def _layout(self, topic: str) -> TopicLayout:
        if topic not in self._layouts:
            fields = {"topics": [{"topic_id": None, "name": topic}], "allow_auto_topic_creation": False}
            answer = self._brokers.ask(self._brokers.any(), Api.METADATA, fields)
            self._brokers.learn(answer.brokers)
            self._layouts[topic] = _read_layout(topic, answer.topics[0])
        return self._layouts[topic]

    def _list_offsets(self, topic: str, when: int) -> dict[int, int]:
        layout = self._layout(topic)
        by_leader: dict[int, list[int]] = {}
        for partition, leader in layout.leaders.items():
            by_leader.setdefault(leader, []).append(partition)
        found: dict[int, int] = {}
        for leader, partitions in by_leader.items():
            wanted = [{"partition_index": each, "timestamp": when} for each in partitions]
            fields = _LIST_OFFSETS | {"topics": [{"name": topic, "partitions": wanted}]}
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
                    found[data.partition_index] = list(batch_sizes(memoryview(data.records or b"")))
        return found

    def _fetch(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        topic_id: uuid.UUID | None,
    ) -> Runs:
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
        if data.error_code == ErrorCode.offset_out_of_range:
            raise self._out_of_range(topic, partition, start)
        check_code(data.error_code, f"{topic}-{partition}")
        return _progress(data, f"{topic}-{partition}", start, end)

    def _ask(self, layout: TopicLayout, partition: int, start: int) -> Channel:
        channel = self._brokers.node(layout.leaders[partition])
        wanted = _wanted(layout, {partition: start}, self._max_bytes)
        channel.ask(Api.FETCH, _VERSIONS[Api.FETCH], _FETCH | wanted)
        return channel

    def _ask_ahead(self, topic: str, partition: int, start: int) -> None:
        """Asks, and leaves it to whoever wants the answer to notice that the broker is gone."""
        with contextlib.suppress(RetriableError):
            channel = self._ask(self._layout(topic), partition, start)
            self._asked = (topic, partition, start), channel

    def _forget(self) -> None:
        self._layouts.clear()
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


_LIST_OFFSETS: dict[str, Any] = {"replica_id": -1, "isolation_level": _READ_COMMITTED}
_FETCH: dict[str, Any] = {
    "replica_id": -1,
    "max_wait": _FETCH_WAIT_MS,
    "min_bytes": 1,
    "isolation_level": _READ_COMMITTED,
    "session_id": 0,
    "session_epoch": -1,  # no fetch session: each request says everything
}
_FETCH_PARTITION: dict[str, Any] = {
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "log_start_offset": -1,
}


def _wanted(layout: TopicLayout, starts: Mapping[int, int], max_bytes: int) -> dict[str, Any]:
    """What a fetch says of the partitions and their first offsets; `max_bytes` is for each of them."""
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
            "offsets of the old one mean nothing on the new. Start anew, with an empty checkpoint",
            code=ErrorCode.inconsistent_topic_id,
        )


def _progress(data: Fields, where: str, start: int, end: int) -> Runs:
    """The runs of a fetch; RetriableError if it brought nothing although the range is not at its end."""
    aborted = [
        AbortedTransaction(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
    ]
    found = visible_runs(memoryview(data.records or b""), aborted, start)
    if found.next_offset <= start:
        raise RetriableError(
            f"{where}: no records from offset {start} although {end} should be the end; "
            f"the log is readable up to {data.last_stable_offset} (high watermark {data.high_watermark})"
        )
    return found
