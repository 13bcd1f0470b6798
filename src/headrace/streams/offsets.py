"""Where a stream stands on a topic, and how far its next micro-batch goes; no I/O.

A position is the next offset to read of each partition, with the topic's id, so
that a topic that was deleted and created again is not taken for the old one.
Spark keeps it as JSON in the checkpoint:

    {"topic": "orders", "id": "…", "next": {"0": 1200, "1": 1187}}
"""

import itertools
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any, Self

from headrace.errors import RequestError

__all__ = ["Range", "TopicPosition", "admit", "ranges"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPosition:
    """The next offset to read of every partition of one topic."""

    topic: str
    topic_id: uuid.UUID
    next: Mapping[int, int]

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """What `to_json` made, as a checkpoint gives it back."""
        following = {int(partition): int(offset) for partition, offset in fields["next"].items()}
        return cls(topic=fields["topic"], topic_id=uuid.UUID(fields["id"]), next=following)

    def to_json(self) -> dict[str, Any]:
        """Plain values, in an order that depends on nothing but the position."""
        following = {str(partition): offset for partition, offset in sorted(self.next.items())}
        return {"topic": self.topic, "id": str(self.topic_id), "next": following}


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Offsets `start` up to `end` of one partition: the work of one Spark task."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    start: int
    end: int


def admit(start: TopicPosition, latest: TopicPosition, max_records: int | None) -> TopicPosition:
    """How far a micro-batch from `start` may go towards `latest`.

    The limit is shared among partitions in proportion to what waits in each, so that
    none starves; every partition with something waiting gets at least one. Records are
    counted as offsets, of which markers and compaction leave some without a record.
    Raises RequestError if the log now ends before `start`: records were lost.
    """
    _check_same_log(start, latest)
    waiting = {partition: end - start.next.get(partition, 0) for partition, end in latest.next.items()}
    share = _share(max_records, sum(waiting.values()))
    if share == 1:
        return latest
    following = {
        partition: start.next.get(partition, 0) + ceil(count * share) for partition, count in waiting.items()
    }
    return TopicPosition(topic=start.topic, topic_id=start.topic_id, next=following)


def _share(limit: int | None, total: int) -> Fraction:
    return Fraction(1) if limit is None or total <= limit else Fraction(limit, total)


def ranges(start: TopicPosition, end: TopicPosition, max_records: int) -> Iterator[Range]:
    """The offsets between two positions in pieces of at most `max_records`.

    A partition that `start` does not know was added since, and is read from offset 0.
    """
    for partition, last in sorted(end.next.items()):
        first = start.next.get(partition, 0)
        pieces = max(1, -(-(last - first) // max_records))
        cuts = [first + (last - first) * piece // pieces for piece in range(pieces + 1)]
        for low, high in itertools.pairwise(cuts):
            if low < high:
                yield Range(topic=end.topic, topic_id=end.topic_id, partition=partition, start=low, end=high)


def _check_same_log(start: TopicPosition, latest: TopicPosition) -> None:
    if start.topic != latest.topic or start.topic_id != latest.topic_id:
        raise RequestError(
            f"the checkpoint belongs to topic {start.topic!r} with id {start.topic_id}, but the log has "
            f"{latest.topic!r} with id {latest.topic_id}: it was deleted and created again, or another was "
            "named. Use a new checkpoint, or the old topic"
        )
    for partition, offset in start.next.items():
        if latest.next.get(partition, 0) < offset:
            raise RequestError(
                f"{start.topic}-{partition} was read up to offset {offset}, but the log ends at "
                f"{latest.next.get(partition, 0)}: it lost records, or is another log. "
                "Use a new checkpoint to read what is there"
            )
