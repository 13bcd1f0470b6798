"""How many bytes offsets take, decoded, by what is known of their record batches; no I/O."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace

from headrace.streams.offsets import TopicPosition

__all__ = ["Sizes", "within"]

_SHARES = 1 << 40  # finer than any count of offsets


class Sizes:
    """The bytes from `start` up to `end` in one partition, as far as its batches were looked at.

    Inside a batch the bytes are taken to be spread evenly over its offsets; what lies
    behind the last one is taken to be as large as what was seen, on average.
    """

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
        self._offsets, self._bytes = [start], [0.0]

    @property
    def reached(self) -> int:
        """The offset behind the last batch that was looked at."""
        return self._offsets[-1]

    @property
    def bytes(self) -> float:
        """Those of everything that was looked at."""
        return self._bytes[-1]

    def add(self, base_offset: int, next_offset: int, size_bytes: int) -> None:
        """The next batch; of one that begins before, or ends behind, only what lies between counts."""
        last = min(next_offset, self.end)
        fresh = last - max(base_offset, self.reached)
        if fresh > 0:
            self._bytes.append(self.bytes + size_bytes * fresh / (next_offset - base_offset))
            self._offsets.append(last)

    def skip_to(self, offset: int) -> None:
        """Notes that the log has nothing before this offset any more."""
        if offset > self.reached:
            self._offsets.append(min(offset, self.end))
            self._bytes.append(self.bytes)

    def before(self, offset: int) -> float:
        """The bytes from `start` up to an offset."""
        if offset > self.reached:
            seen = self.reached - self.start
            return self.bytes + (self.bytes / seen * (offset - self.reached) if seen else 0.0)
        after = bisect_left(self._offsets, offset)
        if self._offsets[after] == offset:
            return self._bytes[after]
        low, high = self._offsets[after - 1], self._offsets[after]
        part = (offset - low) / (high - low)
        return self._bytes[after - 1] + part * (self._bytes[after] - self._bytes[after - 1])


def within(
    start: TopicPosition, end: TopicPosition, sizes: Mapping[int, Sizes], max_bytes: int
) -> TopicPosition:
    """How far a micro-batch from `start` may go towards `end` so that it takes no more than `max_bytes`.

    All partitions are cut at the same share of what waits in them, and each with
    something waiting gets at least one offset. If as many bytes as the limit were looked
    at, nothing is admitted that was not.
    """
    waiting = {each: offset - start.next.get(each, 0) for each, offset in end.next.items()}

    def cut(share: int) -> dict[int, int]:
        return {
            each: start.next.get(each, 0) + (max(1, -(-count * share // _SHARES)) if count else 0)
            for each, count in waiting.items()
        }

    def fits(share: int) -> bool:
        ends = cut(share)
        return sum(found.before(ends[each]) for each, found in sizes.items()) <= max_bytes

    most = _SHARES
    if sum(found.bytes for found in sizes.values()) >= max_bytes:
        most = min(
            _SHARES * (each.reached - each.start) // (each.end - each.start) for each in sizes.values()
        )
    if fits(most):
        return end if most == _SHARES else replace(end, next=cut(most))
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return replace(end, next=cut(low))
