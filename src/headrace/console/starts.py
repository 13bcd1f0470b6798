"""Where in a topic a page or a subscription begins, as its parameters say. Blocks, as reading does."""

from collections.abc import Mapping

from headrace.client import OffsetsGone, RawFetcher
from headrace.console.positions import parse_positions
from headrace.console.problems import ProblemError
from headrace.console.reading import bounds
from headrace.console.routing import Call

__all__ = ["held", "last_count", "starts"]


def held(fetcher: RawFetcher, topic: str, partition: int | None) -> dict[int, tuple[int, int]]:
    """First and next offset of the partitions asked for: one, or all; raises ProblemError with 404."""
    found = bounds(fetcher, topic)
    if partition is None:
        return found
    if partition not in found:
        raise ProblemError(404, f"{topic} has no partition {partition}; it has {len(found)}")
    return {partition: found[partition]}


def starts(call: Call, fetcher: RawFetcher, known: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """The offset to begin with in each partition, as the parameters say."""
    if call["cursor"] is not None:
        given = parse_positions(call["cursor"])
        return {
            partition: _inside(call["topic"], partition, given.get(partition, first), first, end)
            for partition, (first, end) in known.items()
        }
    if call["offset"] is not None:
        if call["partition"] is None:
            raise ProblemError(400, "an offset is one of a partition; give partition too")
        ((partition, (first, end)),) = known.items()
        if not first <= call["offset"] <= end:
            raise _gone(call["topic"], partition, call["offset"], first, end)
        return {partition: call["offset"]}
    if call["time"] is not None:
        found = fetcher.offsets(call["topic"], max(0, call["time"]))
        return {partition: max(first, found[partition]) for partition, (first, _) in known.items()}
    if call["from"] == "latest":
        return {partition: end for partition, (_, end) in known.items()}
    last = last_count(call["from"])
    if last is not None:
        return {partition: max(first, end - last) for partition, (first, end) in known.items()}
    if call["from"] not in (None, "earliest"):
        raise ProblemError(400, f"from={call['from'][:40]!r}: give earliest, latest or end-100")
    return {partition: first for partition, (first, _) in known.items()}


def _inside(topic: str, partition: int, offset: int, first: int, end: int) -> int:
    """A position that was handed out earlier; one beyond the end is of a topic that was made anew."""
    if offset > end:
        raise _gone(topic, partition, offset, first, end)
    return offset


def _gone(topic: str, partition: int, offset: int, first: int, end: int) -> OffsetsGone:
    return OffsetsGone(
        f"{topic}-{partition} has no offset {offset}: it holds {first} up to {end}",
        asked=offset,
        first=first,
        end=end,
    )


def last_count(start: str | None) -> int | None:
    """How many records before the end: 100 of `end-100`; None if it is something else."""
    count = (start or "").removeprefix("end-")
    known = start is not None and start.startswith("end-") and count.isascii() and count.isdigit()
    return int(count) if known and len(count) <= 9 else None
