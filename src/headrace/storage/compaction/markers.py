"""Which batches belong to aborted transactions, and which markers are of no use any more."""

from bisect import bisect_right
from collections.abc import Sequence

from headrace.records import BatchHeader
from headrace.storage.producers import AbortedTransaction

__all__ = ["AbortedRanges", "Markers"]


class AbortedRanges:
    """First and last offsets of each producer's aborted transactions."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first_offset, last_offset in aborted:
            self._ranges.setdefault(producer_id, []).append((first_offset, last_offset))

    def covers(self, header: BatchHeader) -> bool:
        """Whether the batch is void."""
        ranges = self._ranges.get(header.producer_id) if header.is_transactional else None
        if not ranges:
            return False
        rank = bisect_right(ranges, header.base_offset, key=lambda pair: pair[0]) - 1
        return rank >= 0 and header.base_offset <= ranges[rank][1]


class Markers:
    """Tells of each marker whether batches of its transaction are left before it.

    Fed with every header from the log start on. A marker is needed as long as there
    is such a batch, even an empty one: a reader that replays the log must find its end.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()

    def is_spent(self, header: BatchHeader) -> bool:
        """Takes in the next batch; whether it is a marker that ends nothing that is left."""
        if not header.is_control:
            if header.is_transactional:
                self._open.add(header.producer_id)
            return False
        if header.producer_id not in self._open:
            return True
        self._open.discard(header.producer_id)
        return False
