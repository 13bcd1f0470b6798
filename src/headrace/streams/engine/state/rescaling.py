"""The state of a query brought from one number of buckets to another, without a look at the log.

A bucket is a range of the keys' hashes. So the keys of a new bucket come from one old bucket, or
from neighbours; and of each of them its operators know which part of their state that is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from headrace.streams.engine.state.log import BucketCopy, BucketLog, StoredState, append, load
from headrace.streams.operators import part_of_snapshot

__all__ = ["Keys", "overlapping", "rescale"]

Keys = Sequence[Sequence[str] | None] | None
"""By input the columns of an operator's key; None for a state that is the same in every bucket."""

_HASHES = 1 << 32  # a bucket is chosen by so many values of a hash


def overlapping(bucket: int, count: int, before: int) -> range:
    """Which of the buckets that there were `before` have keys of one of `count` buckets."""
    first, behind = -(-bucket * _HASHES // count), -(-(bucket + 1) * _HASHES // count)
    return range(first * before // _HASHES, (behind - 1) * before // _HASHES + 1)


def rescale(
    old: Sequence[BucketLog],
    new: Sequence[BucketLog],
    batch: int,
    new_states: Callable[[], Sequence[StoredState]],
    keys: Sequence[Keys],
    lowest_us: int,
) -> Iterator[int]:
    """Writes the state behind a batch to the new buckets, and says after each which one it was.

    `keys` are those of the states that `new_states` makes, in their order.
    """

    @lru_cache(maxsize=2)  # neighbours share an old bucket
    def stored(bucket: int) -> tuple[list[bytes], int]:
        copy = load(old[bucket], new_states, None, batch + 1, lowest_us)
        return [state.snapshot() for state in copy.states], copy.watermark_us

    for bucket, log in enumerate(new):
        froms = (stored(each) for each in overlapping(bucket, len(new), len(old)))
        copy = _merged(froms, list(new_states()), keys, bucket, len(new), lowest_us)
        append(log, copy, batch, [state.snapshot() for state in copy.states])
        yield bucket


def _merged(
    froms: Iterable[tuple[Sequence[bytes], int]],
    states: list[StoredState],
    keys: Sequence[Keys],
    bucket: int,
    count: int,
    lowest_us: int,
) -> BucketCopy:
    watermark_us = lowest_us
    for blobs, reached_us in froms:
        watermark_us = max(watermark_us, reached_us)
        for state, blob, inputs in zip(states, blobs, keys, strict=True):
            state.replay(blob if inputs is None else part_of_snapshot(blob, inputs, bucket, count))
    return BucketCopy(states, watermark_us)
