"""Compares the rows that a target has with those that it must have.

First by checksums: keys are spread over ranges of their hashes, and each range has one
checksum, whatever the order in which its rows come. Then, for ranges whose checksums differ, row by
row. So only rows of such ranges are ever in memory.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from headrace.derived.changes import Row, canonical

__all__ = ["RANGES", "Difference", "compare_rows", "difference_of", "range_of", "range_sums"]

RANGES = 1024
_BITS = 128
_MASK = (1 << _BITS) - 1

Rows = Iterable[tuple[bytes, Row]]
Kind = Literal["missing", "extra", "different"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A row that is missing from the target, is there but should not be, or differs."""

    identity: bytes
    kind: Kind
    expected: Row | None
    found: Row | None


def range_of(identity: bytes) -> int:
    """The range that a row belongs to."""
    return int.from_bytes(hashlib.blake2b(identity, digest_size=2).digest()) % RANGES


def range_sums(rows: Rows) -> tuple[list[int], int]:
    """The checksum of every range, and the number of rows."""
    sums, count = [0] * RANGES, 0
    for identity, row in rows:
        content = len(identity).to_bytes(4) + identity + canonical(row)
        digest = int.from_bytes(hashlib.blake2b(content, digest_size=_BITS // 8).digest())
        at = range_of(identity)
        sums[at] = (sums[at] + digest) & _MASK
        count += 1
    return sums, count


def compare_rows(expected: Rows, found: Rows) -> Iterator[Difference]:
    """The rows that differ, by identity; both sides are held in memory."""
    must, has = dict(expected), dict(found)
    for identity in sorted(must.keys() | has.keys()):
        differs = difference_of(identity, must.get(identity), has.get(identity))
        if differs is not None:
            yield differs


def difference_of(identity: bytes, expected: Row | None, found: Row | None) -> Difference | None:
    """How what there is of a row differs from what there must be; None if it does not."""
    if expected is None:
        kind: Kind = "extra"
    elif found is None:
        kind = "missing"
    elif canonical(expected) != canonical(found):
        kind = "different"
    else:
        return None
    return Difference(identity=identity, kind=kind, expected=expected, found=found)
