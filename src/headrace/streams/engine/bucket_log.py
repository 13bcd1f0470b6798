"""The state of one bucket: what is durable of it, and the copy a worker holds.

Durable is a log of entries, one per micro-batch and numbered like it: a snapshot of the
operators' states now and then, and a delta per batch behind it. Batch n builds on entry
n - 1 and writes entry n, however often it is tried; Spark begins it once batch n - 1 is
done, so what entry n - 1 builds on is all that anybody will ask for again.

A worker keeps the states it built in memory; which worker Spark gives a bucket to next is
not known, so a copy may be behind, or be what a failed attempt left. Every entry therefore
carries a random token: a copy is right if the entry that it stands at has its token still,
and then only the entries behind it are replayed. A copy is taken out of the cache while it
changes, so that an attempt that fails leaves none.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.streams.operators import OperatorState, WindowOperator

__all__ = ["BucketCopy", "BucketLog", "Head", "append", "load"]

_MAX_DELTAS = 32
_MIN_SNAPSHOT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What an entry says of itself and of the entries it builds on, which begin with `base`.

    `base` is a snapshot, or the entry of the first batch; `snapshot_bytes` is its size, and
    `delta_bytes` that of everything behind it.
    """

    number: int
    token: str
    base: int
    watermark_us: int
    delta_bytes: int
    snapshot_bytes: int


class BucketLog(Protocol):
    """Where the entries of one bucket are kept, each a blob per view with a head.

    An entry is there whole or not at all; a later attempt's takes the place of an earlier one's.
    """

    def head(self, number: int) -> Head:
        """Raises CorruptionError if the entry is not there, or not as it was written."""
        ...

    def entry(self, number: int) -> tuple[Head, list[bytes]]:
        """The whole entry; raises CorruptionError likewise."""
        ...

    def put(self, head: Head, blobs: Sequence[bytes]) -> None: ...

    def remove_before(self, number: int) -> None:
        """Removes the entries that nobody will ask for again."""
        ...


@dataclass(slots=True)
class BucketCopy:
    """A worker's copy: the states as of the entry with this head, or None before the first."""

    states: list[OperatorState]
    watermark_us: int
    head: Head | None = None


def load(
    log: BucketLog,
    operators: Sequence[WindowOperator],
    cached: BucketCopy | None,
    batch: int,
    lowest_us: int,
) -> BucketCopy:
    """The state before a batch: the cached copy brought up to date, or one built from the log."""
    begins, last = 0, None
    if batch > 0:
        last = log.head(batch - 1)
        begins = last.base
    if cached is None or last is None or not _is_part(log, cached, last):
        cached = BucketCopy([operator.new_state() for operator in operators], lowest_us)
    elif cached.head is not None:
        begins = cached.head.number + 1
    for number in range(begins, batch):
        _replay(cached, *log.entry(number))
    return cached


def append(
    log: BucketLog,
    copy: BucketCopy,
    batch: int,
    deltas: Sequence[bytes],
    *,
    new_token: Callable[[], str] = lambda: secrets.token_hex(8),
) -> None:
    """Makes one batch durable: its deltas, or a snapshot of everything when that has become cheaper."""
    before, blobs = copy.head, deltas
    base, snapshot_bytes, delta_bytes = batch, sum(map(len, deltas)), 0
    if before is not None:
        base, snapshot_bytes = before.base, before.snapshot_bytes
        delta_bytes = before.delta_bytes + sum(map(len, deltas))
        if batch - base > _MAX_DELTAS or delta_bytes > max(_MIN_SNAPSHOT_BYTES, snapshot_bytes):
            blobs = [state.snapshot() for state in copy.states]
            base, snapshot_bytes, delta_bytes = batch, sum(map(len, blobs)), 0
    head = Head(
        number=batch,
        token=new_token(),
        base=base,
        watermark_us=copy.watermark_us,
        delta_bytes=delta_bytes,
        snapshot_bytes=snapshot_bytes,
    )
    log.put(head, blobs)
    if before is not None and before.base == before.number:
        log.remove_before(before.number)
    copy.head = head


def _is_part(log: BucketLog, copy: BucketCopy, last: Head) -> bool:
    """The copy is what the log has, up to some entry that `last` builds on."""
    if copy.head is None or not last.base <= copy.head.number <= last.number:
        return False
    here = last if copy.head.number == last.number else log.head(copy.head.number)
    return here.token == copy.head.token


def _replay(copy: BucketCopy, head: Head, blobs: Sequence[bytes]) -> None:
    for state, blob in zip(copy.states, blobs, strict=True):
        state.replay(blob)
    copy.watermark_us, copy.head = head.watermark_us, head
