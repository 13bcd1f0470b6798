"""Compares a derived system with its topic, row by row, at the position that it says it reflects."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.client import Connection
from headrace.derived.changes import Row
from headrace.derived.compare import RANGES, Difference, compare_rows, range_of, range_sums
from headrace.derived.expected import ExpectedRows
from headrace.derived.open import open_target
from headrace.derived.spec import Follow
from headrace.derived.target import Target
from headrace.derived.topic import TopicReader
from headrace.errors import RequestError

__all__ = ["Verification", "differing_ranges", "differing_rows", "verify_follow"]

_ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was compared, up to which offsets, and which rows differ."""

    follower: str
    topic: str
    positions: dict[int, int]
    rows: int
    ranges: int = RANGES
    differing_ranges: int = 0
    differences: tuple[Difference, ...] = field(default_factory=tuple)
    building: bool = False

    @property
    def is_equal(self) -> bool:
        """Whether no row differs."""
        return not self.differences

    def to_json(self) -> dict[str, Any]:
        """As `headrace follow verify --json` shows it."""
        return {
            "follower": self.follower,
            "topic": self.topic,
            "equal": self.is_equal,
            "rows": self.rows,
            "ranges": self.ranges,
            "differing_ranges": self.differing_ranges,
            "building": self.building,
            "positions": {str(each): at for each, at in self.positions.items()},
            "differences": [
                {
                    "key": each.identity.decode(errors="backslashreplace"),
                    "kind": each.kind,
                    "expected": each.expected,
                    "found": each.found,
                }
                for each in self.differences
            ],
        }


def verify_follow(follow: Follow, connection: Connection, *, target: Target | None = None) -> Verification:
    """Compares the target with the topic at the target's position; the follower may run meanwhile.

    Raises RequestError if the target has no position, or one that the log does not have.
    """
    opened = target or open_target(follow)
    try:
        with TopicReader(connection, follow.topic) as reader, ExpectedRows() as expected:
            return _verified(follow, opened, reader, expected)
    finally:
        if target is None:
            opened.close()


def _verified(follow: Follow, target: Target, reader: TopicReader, expected: ExpectedRows) -> Verification:
    facts = reader.facts()
    with target.reading() as state:
        if state is None:
            raise RequestError(f"{follow.name} has no position in its target: it was never run, or emptied")
        if state.topic_id != facts.topic_id:
            raise RequestError(f"the topic {follow.topic} was created again since; run the follower first")
        expected.read(reader, facts.starts, state.positions, follow.format)
        ranges, count = differing_ranges(expected, target)
        found = tuple(differing_rows(expected, target, ranges))
    found = _settled(follow, target, reader, expected, found)
    return Verification(
        follower=follow.name,
        topic=follow.topic,
        positions=dict(state.positions),
        rows=count,
        differing_ranges=len(ranges),
        differences=found,
        building=state.is_building,
    )


def differing_ranges(expected: ExpectedRows, target: Target) -> tuple[set[int], int]:
    """The ranges whose checksums differ, and how many rows there must be."""
    must, count = range_sums(_stored(expected, target))
    has, _ = range_sums(target.rows())
    return {each for each in range(RANGES) if must[each] != has[each]}, count


def differing_rows(expected: ExpectedRows, target: Target, ranges: Collection[int]) -> Iterator[Difference]:
    """The rows of these ranges that differ."""
    if ranges:
        must = (each for each in _stored(expected, target) if range_of(each[0]) in ranges)
        has = (each for each in target.rows() if range_of(each[0]) in ranges)
        yield from compare_rows(must, has)


def _stored(expected: ExpectedRows, target: Target) -> Iterator[tuple[bytes, Row]]:
    for key, row in expected:
        yield target.identity(key), target.stored(row)


def _settled(
    follow: Follow,
    target: Target,
    reader: TopicReader,
    expected: ExpectedRows,
    found: tuple[Difference, ...],
) -> tuple[Difference, ...]:
    """The rows that still differ when they are read together with the position that they reflect.

    A target without snapshots may have moved on while its rows were read.
    """
    for _ in range(_ROUNDS):
        if not found or target.has_snapshots:
            break
        wanted, before = {each.identity for each in found}, dict(expected.positions)
        state, has = target.read_together(wanted)
        if state is None:
            break
        expected.read(reader, {}, state.positions, follow.format)
        must = (each for each in _stored(expected, target) if each[0] in wanted)
        found = tuple(compare_rows(must, has.items()))
        if expected.positions == before:
            break
    return found
