"""The state of one bucket: what is durable of it, and the copy a worker holds.

Durable is a log of entries, one per micro-batch and numbered like it: a snapshot of the
operators' states now and then, and a delta per batch behind it. Batch n builds on entry
n - 1 and writes entry n, however often it is tried; Spark begins it once batch n - 1 is
done, so what entry n - 1 builds on is all that anybody will ask for again. An entry names
its query, and the token of the entry it was made from: one of another query, or made from
another entry than the one that is there, is refused, and never taken for the state.

A worker keeps the states it built in memory; which worker Spark gives a bucket to next is
not known, so a copy may be behind, or be what a failed attempt left. Every entry therefore
carries a random token: a copy is right if the entry that it stands at has its token still,
and then only the entries behind it are replayed. A copy is taken out of the cache while it
changes, so that an attempt that fails leaves none.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.errors import CorruptionError

__all__ = [
    "BucketCopies",
    "BucketCopy",
    "BucketLog",
    "BucketStates",
    "Head",
    "StoredState",
    "append",
    "load",
]

_MAX_DELTAS = 32  # behind a snapshot, for each `_MIN_SNAPSHOT_BYTES` that the next one would take,
_MOST_DELTAS = 1024  # and never more: each is read when a state is built from its log
_MOST_COPIES = 256  # of all queries of a worker, most of which are of stages that it no longer gets
_MIN_SNAPSHOT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What an entry says of itself and of the entries it builds on, which begin with `base`.

    `query` is the id of the query whose state it is, `made_from` the token of the entry
    before it, empty for the first. `base` is a snapshot, or the entry of the first batch;
    `snapshot_bytes` is its size, and `delta_bytes` that of everything behind it. `held` says of
    each state how many `bytes` it takes from `base` on, and by input how many `rows` it holds, and
    the event time of the `oldest_us`: for onlookers, and not there in entries of older versions.
    `snapshot_rows` is how many rows were held at `base`, 0 where that is not known.
    """

    number: int
    query: str
    token: str
    made_from: str
    base: int
    watermark_us: int
    delta_bytes: int
    snapshot_bytes: int
    held: Sequence[Mapping[str, Any]] = field(default_factory=list)  # as JSON has it
    snapshot_rows: int = 0


class BucketLog(Protocol):
    """Where the entries of one bucket of one query are kept, each a blob per view with a head.

    An entry is there whole or not at all; a later attempt's takes the place of an earlier one's.
    """

    @property
    def query(self) -> str: ...

    @property
    def receipt(self) -> bytes | None:
        """What the driver must be told of the entry that was put, if anything: a message of kind STATE."""
        ...

    def head(self, number: int) -> Head:
        """Raises CorruptionError if the entry is not there, not as it was written, or of another query."""
        ...

    def entry(self, number: int) -> tuple[Head, list[bytes]]:
        """The whole entry; raises CorruptionError likewise."""
        ...

    def put(self, head: Head, blobs: Sequence[bytes]) -> None: ...

    def remove_before(self, number: int) -> None:
        """Removes the entries that nobody will ask for again."""
        ...


class BucketStates(Protocol):
    """Where the state of a query is, as its workers find it."""

    def logs(self, stage: int, batch: int) -> "Callable[[int], BucketLog]":
        """The log of each bucket of a stage, for an attempt of this batch."""
        ...


class StoredState(Protocol):
    """What a bucket keeps of one operator, as the log sees it."""

    def held(self) -> Sequence[tuple[int, int | None]]:
        """By input, how many rows it holds, and the event time of the oldest: for onlookers."""
        ...

    def snapshot(self) -> bytes: ...

    def replay(self, stored: bytes) -> None: ...


@dataclass(slots=True)
class BucketCopy:
    """A worker's copy: the states as of the entry with this head, or None before the first."""

    states: list[Any]
    watermark_us: int
    head: Head | None = None


class BucketCopies:
    """What a worker knows of its buckets, by query and bucket: the latest it worked on, within a bound.

    A query is named by a fresh id each time it is started, so that copies of an earlier run
    are never met.
    """

    def __init__(self, most: int = _MOST_COPIES) -> None:
        self._most = most
        self._copies: dict[tuple[str, int], BucketCopy] = {}

    def __len__(self) -> int:
        return len(self._copies)

    def take(self, place: tuple[str, int]) -> BucketCopy | None:
        """The copy, which is no longer kept: an attempt that fails must leave none."""
        return self._copies.pop(place, None)

    def keep(self, place: tuple[str, int], copy: BucketCopy) -> None:
        """Keeps a copy that its log has; lets go of the one that was not asked for longest."""
        self._copies[place] = copy
        while len(self._copies) > self._most:
            del self._copies[next(iter(self._copies))]


def load(
    log: BucketLog,
    new_states: Callable[[], "Sequence[StoredState]"],
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
        cached = BucketCopy(list(new_states()), lowest_us)
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
    held = [_held(state) for state in copy.states]
    held_bytes, rows = [len(each) for each in deltas], sum(sum(each["rows"]) for each in held)
    base, snapshot_bytes, delta_bytes, snapshot_rows = batch, sum(map(len, deltas)), 0, rows
    if before is not None:
        base, snapshot_bytes, snapshot_rows = before.base, before.snapshot_bytes, before.snapshot_rows
        delta_bytes = before.delta_bytes + sum(map(len, deltas))
        if len(before.held) == len(held_bytes):
            held_bytes = [now + each["bytes"] for now, each in zip(held_bytes, before.held, strict=True)]
        if _snapshot_pays(before, batch, delta_bytes, rows):
            blobs = [state.snapshot() for state in copy.states]
            base, snapshot_bytes, delta_bytes, snapshot_rows = batch, sum(map(len, blobs)), 0, rows
            held_bytes = [len(each) for each in blobs]
    head = Head(
        number=batch,
        query=log.query,
        token=new_token(),
        made_from="" if before is None else before.token,
        base=base,
        watermark_us=copy.watermark_us,
        delta_bytes=delta_bytes,
        snapshot_bytes=snapshot_bytes,
        held=[{"bytes": size, **each} for size, each in zip(held_bytes, held, strict=True)],
        snapshot_rows=snapshot_rows,
    )
    log.put(head, blobs)
    if before is not None and before.base == before.number:
        log.remove_before(before.number)
    copy.head = head


def _snapshot_pays(before: Head, batch: int, delta_bytes: int, rows: int) -> bool:
    """Whether everything is to be written anew, rather than one more delta.

    When deltas take as much as the last snapshot, or are many for what a snapshot would take now. Either
    way a batch costs no more of a large state than of a small one.
    """
    if delta_bytes > max(_MIN_SNAPSHOT_BYTES, before.snapshot_bytes):
        return True
    share = min(1.0, rows / before.snapshot_rows) if before.snapshot_rows else 1.0
    megabytes = max(1.0, before.snapshot_bytes * share / _MIN_SNAPSHOT_BYTES)
    return batch - before.base > min(_MAX_DELTAS * megabytes, _MOST_DELTAS)


def _held(state: StoredState) -> dict[str, Any]:
    """What a state says that it holds, by input, or of all inputs together."""
    inputs = state.held()
    return {"rows": [rows for rows, _ in inputs], "oldest_us": [oldest_us for _, oldest_us in inputs]}


def _is_part(log: BucketLog, copy: BucketCopy, last: Head) -> bool:
    """The copy is what the log has, up to some entry that `last` builds on."""
    if copy.head is None or not last.base <= copy.head.number <= last.number:
        return False
    here = last if copy.head.number == last.number else log.head(copy.head.number)
    return here.token == copy.head.token


def _replay(copy: BucketCopy, head: Head, blobs: Sequence[bytes]) -> None:
    if copy.head is not None and head.made_from != copy.head.token:
        raise CorruptionError(
            f"the state behind batch {head.number} was made from another state of batch "
            f"{copy.head.number} (token {head.made_from}) than the one that is there (token "
            f"{copy.head.token}): files of the checkpoint were replaced, or another machine has its own; "
            "see that all executors share the --data folder, then rebuild the views from the log "
            "(headrace run --rebuild)"
        )
    for state, blob in zip(copy.states, blobs, strict=True):
        state.replay(blob)
    copy.watermark_us, copy.head = head.watermark_us, head
