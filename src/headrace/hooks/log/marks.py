"""Which records of a derived topic a hook is done with, by their source. Pure.

A rebuild writes a derived topic again: the same sources, at other offsets, where their key
says or, without keys, anywhere. What was handled must be known by its source, and all of
it, in little space. Two things are kept for each partition of a source:

- the *frontier*: every record whose source is at or below it is handled, or was written
  before the hook began;
- the sources above it that are handled, one by one.

How does the frontier move? A query writes the rows of one source partition in the order of
that partition, batch after batch, each batch in a transaction. So

- in any one partition of the derived topic, sources that appear for the first time rise.
  What is handled there up to a source s leaves nothing new below s in that partition;
- a record that could be read was committed, and a batch is committed after all of it was
  written. So all first appearances up to the highest source that was handled (the
  *candidate*) are on the log by now; once a partition is handled up to the end that it has
  now, it has none of them left.

`advance` takes, for each partition of the derived topic, the greater of the two, and the
minimum over all partitions. Rows of one record have one source offset and differ by `row`;
the first rule therefore covers only what is strictly below.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.records import SourceRecord

__all__ = ["Marks", "SourcePartition"]

SourcePartition = tuple[str, int]
"""Topic and partition of a source."""


@dataclass(slots=True)
class _Marked:
    """One partition of a source."""

    frontier: int = -1
    above: set[tuple[int, int]] = field(default_factory=set)
    highest: int = -1
    reached: dict[int, int] = field(default_factory=dict)  # by partition of the derived topic

    def advance(self, candidate: int, behind: Mapping[int, bool]) -> None:
        """`behind` says of each partition whether it is handled up to its end."""
        covered = min(
            max(self.reached.get(partition, 0) - 1, candidate if is_done else -1)
            for partition, is_done in behind.items()
        )
        self.frontier = max(self.frontier, covered)
        self.above = {each for each in self.above if each[0] > self.frontier}


@dataclass(slots=True)
class Marks:
    """The marks of one hook; changed by its deliverer alone."""

    _places: dict[SourcePartition, _Marked] = field(default_factory=dict)

    def begin(self, place: SourcePartition, end: int) -> None:
        """What a source partition has before this offset now is older than the hook."""
        self._places[place] = _Marked(frontier=end - 1, highest=end - 1)

    def forget(self, topic: str) -> None:
        """The topic was recreated: its offsets mean other records now."""
        for place in [each for each in self._places if each[0] == topic]:
            del self._places[place]

    def is_done(self, source: SourceRecord) -> bool:
        """Whether this record was handled before, here or elsewhere in the derived topic."""
        marked = self._places.get((source.topic, source.partition))
        if marked is None:
            return False
        return source.offset <= marked.frontier or (source.offset, source.row) in marked.above

    def add(self, partition: int, source: SourceRecord) -> None:
        """A record in this partition of the derived topic is handled: delivered, muted or given up."""
        marked = self._places.setdefault((source.topic, source.partition), _Marked())
        marked.highest = max(marked.highest, source.offset)
        marked.reached[partition] = max(marked.reached.get(partition, -1), source.offset)
        if source.offset > marked.frontier:
            marked.above.add((source.offset, source.row))

    def candidate(self) -> dict[SourcePartition, int]:
        """The highest sources handled so far; ask for the ends of the derived topic after this."""
        return {place: marked.highest for place, marked in self._places.items()}

    def advance(
        self, candidate: Mapping[SourcePartition, int], ends: Mapping[int, int], positions: Mapping[int, int]
    ) -> None:
        """Moves the frontiers, given ends that were asked for after the candidate, and what is handled."""
        if not ends:
            return
        behind = {partition: positions.get(partition, 0) >= end for partition, end in ends.items()}
        for place, marked in self._places.items():
            if marked.above:
                marked.advance(candidate.get(place, -1), behind)

    @property
    def above(self) -> int:
        """How many sources are kept one by one."""
        return sum(len(marked.above) for marked in self._places.values())

    def to_json(self) -> list[list[Any]]:
        """Plain values, for `from_json`: topic, partition, frontier, and pairs of offset and row."""
        return [
            [topic, partition, marked.frontier, sorted(map(list, marked.above))]
            for (topic, partition), marked in sorted(self._places.items())
        ]

    @classmethod
    def from_json(cls, data: Iterable[Iterable[Any]]) -> "Marks":
        """The marks that `to_json` was called on; the progress of each partition is found out again."""
        marks = cls()
        for topic, partition, frontier, above in data:
            pairs = {(offset, row) for offset, row in above}
            highest = max((offset for offset, _ in pairs), default=frontier)
            marks._places[topic, partition] = _Marked(frontier, pairs, max(frontier, highest))
        return marks
