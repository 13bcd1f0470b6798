"""Cuts: the positions of a source's topics that belong together, so that its transactions stay whole.

`docs/reference/cuts.md` is the contract. A cut is an END record on the source's transaction topic; it
names the next offset of every partition of the source's topics. Cuts are read once, in order, and
those that wait are bounded in number: any of them may be left out, for a batch may hold several
transactions.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.client import EARLIEST, LATEST, OffsetsGone, RawFetcher
from headrace.errors import RequestError
from headrace.records import decode_columns
from headrace.streams.offsets import TopicPosition

__all__ = ["Cut", "CutReader", "at_cut", "last_cut", "newest_cut", "parse_cut", "thinned"]

_MOST_WAITING = 20_000
_LOOKED_BACK = 100  # records of a transaction topic, and each time twice as many

Positions = Mapping[str, TopicPosition]  # by topic


@dataclass(frozen=True, slots=True)
class Cut:
    """An END record: its own offset, and by topic and partition the next offsets that it names."""

    offset: int
    ends: Mapping[str, Mapping[int, int]]


def parse_cut(topic: str, offset: int, value: bytes | None) -> Cut | None:
    """The cut that a record is; None for a record that is none.

    Raises RequestError for an END record without offsets, and for what is no JSON.
    """
    if value is None:
        return None
    try:
        fields: Any = json.loads(value)
        fields = fields.get("payload", fields)  # Debezium's form with schemas
        if fields["status"] != "END":
            return None
        ends = {
            name: {int(partition): int(end) for partition, end in each.items()}
            for name, each in fields["offsets"].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RequestError(
            f"the record at offset {offset} of {topic} is no cut ({type(error).__name__}: {error}): a "
            'transaction topic has END records with "offsets", as docs/reference/cuts.md describes them. '
            "Leave out transactions= to read the tables without"
        ) from None
    return Cut(offset, ends)


def at_cut(cut: Cut, position: TopicPosition, latest: TopicPosition) -> TopicPosition:
    """A topic's position at a cut; never before `position`. Partitions that it does not name are not read."""
    ends = cut.ends.get(position.topic, {})
    following = {each: max(ends.get(each, 0), position.next.get(each, 0)) for each in latest.next}
    return replace(latest, next=following)


def last_cut(cuts: Sequence[Cut], start: Positions, latest: Positions, limit: Positions) -> Cut | None:
    """Where the next batch ends; None if no cut behind `start` can be read yet.

    That is the last cut within `limit`, or else the first, whatever its size. `cuts` are in order.
    """
    first = _first(cuts, lambda cut: _moves(cut, start, latest))
    readable = _first(cuts, lambda cut: not _is_within(cut, latest, start))
    fitting = min(readable, _first(cuts, lambda cut: not _is_within(cut, limit, start)))
    if first >= readable:
        return None
    return cuts[max(first, fitting - 1)]


def _first(cuts: Sequence[Cut], condition: Callable[[Cut], bool]) -> int:
    """The place of the first cut for which a condition is true that stays so for all behind it."""
    return bisect_left(cuts, True, key=condition)


def _is_within(cut: Cut, ends: Positions, start: Positions) -> bool:
    return all(
        offset <= max(end.next.get(partition, 0), start[topic].next.get(partition, 0))
        for topic, end in ends.items()
        for partition, offset in cut.ends.get(topic, {}).items()
    )


def _moves(cut: Cut, start: Positions, latest: Positions) -> bool:
    return any(
        at_cut(cut, start[topic], latest[topic]).next != _all(start[topic], latest[topic]) for topic in start
    )


def _all(position: TopicPosition, latest: TopicPosition) -> dict[int, int]:
    return {each: position.next.get(each, 0) for each in latest.next}


def thinned(cuts: Sequence[Cut], most: int) -> list[Cut]:
    """Of too many cuts every second, the newest among them."""
    return list(cuts) if len(cuts) <= most else list(cuts[::-1][::2][::-1])


def newest_cut(fetcher: RawFetcher, topic: str) -> Cut | None:
    """The last cut of a transaction topic, looked for from its end; None if there is none yet."""
    begin, end = fetcher.offsets(topic, EARLIEST)[0], fetcher.offsets(topic, LATEST)[0]
    count = _LOOKED_BACK
    while end > begin:
        start = max(begin, end - count)
        if found := list(_cuts(fetcher, topic, start, end)):
            return found[-1]
        end, count = start, count * 2
    return None


def _cuts(fetcher: RawFetcher, topic: str, start: int, end: int) -> Iterator[Cut]:
    for run in fetcher.fetch(topic, 0, start, end):
        found = decode_columns(run, start_offset=start, end_offset=end, columns=("offset", "value"))
        for offset, value in zip(found["offset"].to_pylist(), found["value"].to_pylist(), strict=True):
            if (cut := parse_cut(topic, offset, value)) is not None:
                yield cut


class CutReader:
    """The cuts of one source that wait to be reached; for one thread."""

    def __init__(self, fetcher: RawFetcher, topic: str) -> None:
        self.topic = topic
        self._fetcher = fetcher
        self._next: int | None = None
        self._waiting: list[Cut] = []

    def behind(self, begin: int, start: Positions, latest: Positions) -> Sequence[Cut]:
        """The cuts behind `start`; those before the offset `begin` of the topic have been reached."""
        self._read(begin)
        reached = _first(self._waiting, lambda cut: _moves(cut, start, latest))
        readable = _first(self._waiting, lambda cut: not _is_within(cut, latest, start))
        del self._waiting[: min(reached, readable)]
        return self._waiting

    def _read(self, begin: int) -> None:
        ends = self._fetcher.offsets(self.topic, LATEST)
        if len(ends) != 1:
            raise RequestError(
                f"transaction topic {self.topic!r} has {len(ends)} partitions, but cuts have one order: "
                "create it with one partition"
            )
        end = ends[0]
        start = begin if self._next is None else self._next
        while start < end:
            try:
                for cut in _cuts(self._fetcher, self.topic, start, end):
                    self._add(cut)
                start = end
            except OffsetsGone as gone:
                first = self._fetcher.offsets(self.topic, EARLIEST)[0]
                if first <= start:
                    raise RequestError(str(gone), code=gone.code) from gone
                start = first
        self._next = end

    def _add(self, cut: Cut) -> None:
        self._waiting.append(cut)
        if len(self._waiting) > _MOST_WAITING:
            self._waiting = thinned(self._waiting, _MOST_WAITING)

    def close(self) -> None:
        """Closes the connections."""
        self._fetcher.close()
