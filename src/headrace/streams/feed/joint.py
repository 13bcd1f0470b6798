"""One feed over several topics: one position, one micro-batch, one cut.

A position over one topic is that topic's own. Over several it is the list of theirs, in the
order in which the query names them:

    {"inputs": [{"topic": "orders", …}, {"topic": "customers", …}],
     "cuts": {"shop.transaction": 42}}            where there are any

Topics of one source whose transactions are to stay whole end each batch at one of the source's
cuts (`cuts`); the position then has the offset behind that cut on its transaction topic.

Every batch has a range of every input, an empty one where nothing came, so that every batch
tells the time of all of them. While there is a past to catch up with, the inputs advance
together in event time: one that is ahead waits for those behind it, so that a join over a year
of history holds its bound and a batch, and not a year.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from headrace.streams.event_time import NO_WATERMARK
from headrace.streams.feed.captured_columns import ColumnReader
from headrace.streams.feed.cuts import Cut, CutReader, at_cut, last_cut
from headrace.streams.feed.planner import FeedPlanner
from headrace.streams.feed.positions import FeedPosition, FeedRange, Times, feed_ranges
from headrace.streams.offsets import TopicPosition

__all__ = ["JointPlanner", "JointPosition", "ahead_of_others"]

_APART_US = 60_000_000  # how far apart inputs may be while there is something to catch up with


@dataclass(frozen=True, slots=True)
class JointPosition:
    """Where a feed stands in each of its topics."""

    inputs: tuple[FeedPosition, ...]
    cuts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """What `to_json` made, as a checkpoint gives it back."""
        inputs = tuple(FeedPosition.from_json(each) for each in fields.get("inputs", (fields,)))
        return cls(inputs, {topic: int(offset) for topic, offset in fields.get("cuts", {}).items()})

    def to_json(self) -> dict[str, Any]:
        """Plain values, in an order that depends on nothing but the position."""
        each = [position.to_json() for position in self.inputs]
        if self.cuts:
            return {"inputs": each, "cuts": dict(sorted(self.cuts.items()))}
        return each[0] if len(each) == 1 else {"inputs": each}

    def ranges(self) -> list[tuple[int, FeedRange]]:
        """The work of the batch that ends here, each with the number of its input."""
        return [(number, span) for number, each in enumerate(self.inputs) for span in feed_ranges(each)]


class JointPlanner:
    """Plans one query's micro-batches over its topics; for one thread.

    `cut_readers` are those of sources whose transactions stay whole, `column_readers` of captures whose
    tables must keep the columns that they are known by.
    """

    def __init__(
        self,
        planners: Sequence[FeedPlanner],
        cut_readers: Sequence[CutReader] = (),
        column_readers: Sequence[ColumnReader] = (),
    ) -> None:
        self._planners = tuple(planners)
        self._cut_readers = tuple(cut_readers)
        self._column_readers = tuple(column_readers)

    def first(self) -> JointPosition:
        """Where a query without checkpoint begins."""
        return JointPosition(tuple(planner.first() for planner in self._planners))

    def latest(self) -> tuple[TopicPosition, ...]:
        """The end of what is committed in every partition of every topic."""
        return tuple(planner.latest() for planner in self._planners)

    def following(
        self,
        start: JointPosition,
        latest: Sequence[TopicPosition],
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        beating: bool = True,
    ) -> JointPosition:
        """The end of the micro-batch after `start`; `start` itself if there is nothing to do."""
        count = len(self._planners)
        limits = max_records and -(-max_records // count), max_bytes and -(-max_bytes // count)
        sources = [_Source(each, self._planners, start, latest) for each in self._cut_readers]
        by_cuts = {number: source for source in sources for number in source.numbers}
        readable = [
            by_cuts[number].newest(number) if number in by_cuts else end for number, end in enumerate(latest)
        ]
        waiting = self._waiting(start, readable) if count > 1 else frozenset()
        for source in sources:
            source.choose(*limits, holding=waiting >= source.numbers)
        ends = tuple(
            planner.following(position, by_cuts[number].end(number), beating=beating)
            if number in by_cuts
            else planner.following(
                position,
                end,
                holding=number in waiting,
                max_records=limits[0],
                max_bytes=limits[1],
                beating=beating,
            )
            for number, (planner, position, end) in enumerate(
                zip(self._planners, start.inputs, latest, strict=True)
            )
        )
        if all(end is begun for end, begun in zip(ends, start.inputs, strict=True)):
            return start
        if not all(each.is_settled() for each in self._column_readers):
            return start
        cuts = {**start.cuts, **{each.reader.topic: each.next for each in sources}}
        if count == 1:
            return JointPosition(ends, cuts)
        return JointPosition(tuple(map(_moved_or_standing, self._planners, start.inputs, ends)), cuts)

    def close(self) -> None:
        """Closes the connections."""
        for planner in self._planners:
            planner.close()
        for reader in self._cut_readers:
            reader.close()
        for columns in self._column_readers:
            columns.close()

    def _waiting(self, start: JointPosition, latest: Sequence[TopicPosition]) -> frozenset[int]:
        """The inputs that are so far ahead of one with something to read that they let it come up."""
        times = [
            planner.times_after(each) for planner, each in zip(self._planners, start.inputs, strict=True)
        ]
        behind = [
            any(offset > each.next.get(partition, 0) for partition, offset in end.next.items())
            for each, end in zip(start.inputs, latest, strict=True)
        ]
        return ahead_of_others(times, behind)


class _Source:
    """The inputs of one source, which move from cut to cut together, in the planning of one batch."""

    def __init__(
        self,
        reader: CutReader,
        planners: Sequence[FeedPlanner],
        start: JointPosition,
        latest: Sequence[TopicPosition],
    ) -> None:
        self.reader = reader
        self.numbers = frozenset(
            number for number, each in enumerate(planners) if each.transactions == reader.topic
        )
        self._planners = planners
        self._start = {latest[each].topic: start.inputs[each].position for each in self.numbers}
        self._latest = {latest[each].topic: latest[each] for each in self.numbers}
        self._topics = {each: latest[each].topic for each in self.numbers}
        self.next = start.cuts.get(reader.topic, 0)
        self._cuts = reader.behind(self.next, self._start, self._latest)
        self._chosen: Cut | None = None

    def newest(self, number: int) -> TopicPosition:
        """An input's end if everything were read that can be."""
        return self._at(number, last_cut(self._cuts, self._start, self._latest, self._latest))

    def choose(self, max_records: int | None, max_bytes: int | None, *, holding: bool) -> None:
        """Decides at which cut the batch ends, within the limits of each input where that can be."""
        if holding:
            return
        limit = {
            self._topics[each]: self._planners[each].admitted(
                self._start[self._topics[each]], self._latest[self._topics[each]], max_records, max_bytes
            )
            for each in self.numbers
        }
        self._chosen = last_cut(self._cuts, self._start, self._latest, limit)
        if self._chosen is not None:
            self.next = self._chosen.offset + 1

    def end(self, number: int) -> TopicPosition:
        """An input's end at the chosen cut; its start, if there is none."""
        return self._at(number, self._chosen)

    def _at(self, number: int, cut: Cut | None) -> TopicPosition:
        topic = self._topics[number]
        return at_cut(cut or Cut(-1, {}), self._start[topic], self._latest[topic])


def _moved_or_standing(planner: FeedPlanner, begun: FeedPosition, end: FeedPosition) -> FeedPosition:
    """An input's part of the batch; one that does not move has an empty range."""
    return planner.standing(begun) if end is begun else end


def ahead_of_others(times: Sequence[Times], behind: Sequence[bool]) -> frozenset[int]:
    """Which inputs are to wait, by the times of their partitions and whether there is more to read."""
    frontiers = [
        min((time.highest for time in each.values() if time.highest is not None), default=NO_WATERMARK)
        for each in times
    ]
    waited_for = [frontier for frontier, more in zip(frontiers, behind, strict=True) if more]
    if not waited_for:
        return frozenset()
    least = min(waited_for)
    return frozenset(number for number, frontier in enumerate(frontiers) if frontier > least + _APART_US)
