"""What the last commit made readable, still in memory for those who wait for it."""

from typing import NamedTuple

from headrace.storage.partition.writer import QueuedBatch
from headrace.storage.producers import ProducerBatch

__all__ = ["MOST_BYTES", "FreshBatches", "fresh_batches"]

MOST_BYTES = 16 * 1024


class FreshBatches(NamedTuple):
    """Whole batches, one behind the other, synced, as they stand in the segment.

    They were checked when they were produced and have not left memory since, so a reader
    who waited for exactly these need not find, read and check them again.
    """

    base_offset: int
    next_offset: int
    octets: bytes


def fresh_batches(queue: list[QueuedBatch]) -> FreshBatches | None:
    """Of what was written and synced; None if some of it is of transactions.

    Who may read those is for the general way to find out.
    """
    for queued in queue:
        if not (queued.entry is None or _is_plain(queued.entry)):
            return None
    octets = b"".join([queued.batch for queued in queue])
    return FreshBatches(queue[0].base_offset, queue[-1].next_offset, octets)


def _is_plain(entry: object) -> bool:
    return isinstance(entry, ProducerBatch) and not entry.transactional
