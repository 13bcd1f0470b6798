"""The state of one bucket: what Spark keeps of it, and the copy a worker holds.

Durable is a log of entries in Spark's state store: a snapshot of the operators'
states now and then, and a delta per batch behind it. A worker keeps the states it
built in memory; which worker Spark gives a bucket to next is not known, so a copy
may be behind, or be what a failed attempt left. Every entry therefore carries a
random token: a copy is right if its last entry's token is the one in the store, and
then only the entries behind it are replayed. A copy is taken out of the cache while
it changes, so that an attempt that fails leaves none.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.streams.operators import OperatorState, WindowOperator

__all__ = ["BucketCopy", "BucketLog", "Entry", "Head", "append", "load"]

_MAX_DELTAS = 32
_MIN_SNAPSHOT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Head:
    """Which entries there are: `base`, a snapshot or the first, and one token for each from there on."""

    base: int
    tokens: tuple[str, ...]
    delta_bytes: int
    snapshot_bytes: int

    @property
    def last(self) -> int:
        return self.base + len(self.tokens) - 1

    def token(self, number: int) -> str | None:
        """The token of an entry that is there, else None."""
        inside = self.base <= number <= self.last
        return self.tokens[number - self.base] if inside else None


@dataclass(frozen=True, slots=True)
class Entry:
    """A blob per view: snapshots of the states, or deltas; and the watermark after it."""

    is_snapshot: bool
    watermark_us: int
    blobs: tuple[bytes, ...]


class BucketLog(Protocol):
    """Where the entries of one bucket are kept; all of a batch's writes take effect together."""

    def head(self) -> Head | None: ...
    def set_head(self, head: Head) -> None: ...
    def get(self, number: int) -> Entry: ...
    def put(self, number: int, entry: Entry) -> None: ...
    def remove(self, number: int) -> None: ...


@dataclass(slots=True)
class BucketCopy:
    """A worker's copy: the states as of entry `number`, whose token it knows."""

    states: list[OperatorState]
    watermark_us: int
    number: int = -1
    token: str = ""
    head: Head | None = field(default=None)


def load(
    log: BucketLog, operators: Sequence[WindowOperator], cached: BucketCopy | None, lowest_us: int
) -> BucketCopy:
    """The committed state: the cached copy brought up to date, or one built from the log."""
    head = log.head()
    if head is None:
        return BucketCopy([operator.new_state() for operator in operators], lowest_us)
    if cached is None or not cached.token or head.token(cached.number) != cached.token:
        cached = _from_base(log, operators, head, lowest_us)
    for number in range(cached.number + 1, head.last + 1):
        _replay(cached, log.get(number))
        cached.number = number
    cached.token, cached.head = head.tokens[-1], head
    return cached


def append(
    log: BucketLog,
    copy: BucketCopy,
    deltas: Sequence[bytes],
    *,
    new_token: Callable[[], str] = lambda: secrets.token_hex(8),
) -> None:
    """Makes one batch durable: its deltas, or a snapshot of everything when that has become cheaper."""
    token, number = new_token(), copy.number + 1
    head = copy.head or Head(number, (), 0, 0)
    delta_bytes = head.delta_bytes + sum(map(len, deltas))
    if len(head.tokens) >= _MAX_DELTAS or delta_bytes > max(_MIN_SNAPSHOT_BYTES, head.snapshot_bytes):
        head = _snapshot(log, copy, head, number, token)
    else:
        log.put(number, Entry(False, copy.watermark_us, tuple(deltas)))
        head = Head(head.base, (*head.tokens, token), delta_bytes, head.snapshot_bytes)
    log.set_head(head)
    copy.number, copy.token, copy.head = number, token, head


def _snapshot(log: BucketLog, copy: BucketCopy, head: Head, number: int, token: str) -> Head:
    blobs = tuple(state.snapshot() for state in copy.states)
    log.put(number, Entry(True, copy.watermark_us, blobs))
    for old in range(head.base, number):
        log.remove(old)
    return Head(number, (token,), 0, sum(map(len, blobs)))


def _from_base(log: BucketLog, operators: Sequence[WindowOperator], head: Head, lowest_us: int) -> BucketCopy:
    entry = log.get(head.base)
    if not entry.is_snapshot:
        states = [operator.new_state() for operator in operators]
        return BucketCopy(states, lowest_us, head.base - 1)
    states = [operator.load(blob, ()) for operator, blob in zip(operators, entry.blobs, strict=True)]
    return BucketCopy(states, entry.watermark_us, head.base)


def _replay(copy: BucketCopy, entry: Entry) -> None:
    for state, delta in zip(copy.states, entry.blobs, strict=True):
        state.replay(delta)
    copy.watermark_us = entry.watermark_us
