"""Positions in a topic: where a page or a subscription begins, and how clients carry them.

As text they are `0:41,1:17`, the next offset of each partition.
"""

from collections.abc import Mapping

from headrace.client import OffsetsGone, RawFetcher
from headrace.console.api import Call
from headrace.console.ask.records import bounds
from headrace.console.problems import ProblemError

__all__ = ["count_before_end", "format_positions", "parse_positions", "partition_bounds", "start_offsets"]

_MOST_CHARACTERS = 256 * 1024


def format_positions(positions: Mapping[int, int]) -> str:
    """In order of partitions; `parse_positions` reads it."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def parse_positions(text: str) -> dict[int, int]:
    """The positions; raises ProblemError if the text is none."""
    try:
        if len(text) > _MOST_CHARACTERS:
            raise ValueError
        pairs = [each.partition(":") for each in text.split(",")] if text else []
        return {_number(partition, 31): _number(offset, 63) for partition, _, offset in pairs}
    except ValueError:
        raise ProblemError(
            400,
            f"{text[:80]!r} is not a position in a topic",
            "pass an event id unchanged, such as 0:41,1:17",
            kind="bad-position",
        ) from None


def _number(text: str, bits: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19) or int(text) >= 1 << bits:
        raise ValueError(text)
    return int(text)


# --- where to begin; these block -----------------------------------------------------------------


def partition_bounds(fetcher: RawFetcher, topic: str, partition: int | None) -> dict[int, tuple[int, int]]:
    """First and next offset of the partitions asked for: one, or all; raises ProblemError with 404."""
    found = bounds(fetcher, topic)
    if partition is None:
        return found
    if partition not in found:
        raise ProblemError(404, f"{topic} has no partition {partition}; it has {len(found)} partitions")
    return {partition: found[partition]}


def start_offsets(call: Call, fetcher: RawFetcher, known: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """The offset to begin with in each partition, as the parameters say."""
    if call["cursor"] is not None:
        given = parse_positions(call["cursor"])
        return {
            partition: _inside(call["topic"], partition, given.get(partition, first), first, end)
            for partition, (first, end) in known.items()
        }
    if call["offset"] is not None:
        if call["partition"] is None:
            raise ProblemError(400, "offset also needs partition")
        ((partition, (first, end)),) = known.items()
        if not first <= call["offset"] <= end:
            raise _gone(call["topic"], partition, call["offset"], first, end)
        return {partition: call["offset"]}
    if call["time"] is not None:
        found = fetcher.offsets(call["topic"], max(0, call["time"]))
        return {partition: max(first, found[partition]) for partition, (first, _) in known.items()}
    if call["from"] == "latest":
        return {partition: end for partition, (_, end) in known.items()}
    last = count_before_end(call["from"])
    if last is not None:
        return {partition: max(first, end - last) for partition, (first, end) in known.items()}
    if call["from"] not in (None, "earliest"):
        raise ProblemError(
            400, f"from={call['from'][:40]!r}: must be earliest, latest or end-N, such as end-100"
        )
    return {partition: first for partition, (first, _) in known.items()}


def _inside(topic: str, partition: int, offset: int, first: int, end: int) -> int:
    """A position that was handed out earlier; one beyond the end is of a topic that was created again."""
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


def count_before_end(start: str | None) -> int | None:
    """How many records before the end: 100 of `end-100`; None if it is something else."""
    count = (start or "").removeprefix("end-")
    known = start is not None and start.startswith("end-") and count.isascii() and count.isdigit()
    return int(count) if known and len(count) <= 9 else None
