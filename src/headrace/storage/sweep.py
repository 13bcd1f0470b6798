"""Checks the many small batches of a chunk at once: what makes recovery fast.

Batch by batch, most of the time goes into Python's calls, not into bytes: 0.9 µs
for a batch of 200 bytes whose checksum takes 0.02. So the headers are taken as
columns, and all checksums are checked by one call of `crc32c`. That works as follows.

A CRC is a register that bytes are fed to. Each batch's checksum says what the
register holds after the batch's body, if it held all ones before. Between two
bodies stand 21 bytes of the next header that no checksum covers. In a copy of the
chunk they are replaced:

```text
4 bytes    what the register should hold now: fed to a register that holds just that,
           they make it zero
13 bytes   zeros, which leave a register of zero as it is
4 bytes    constant, which make all ones of zero
```

So the register meets every body with all ones, and after the last body it holds
what the last checksum says. If a body differs from its checksum, what is wrong in
the register stays in it to the end: each step can be undone, so nothing that
differs becomes equal. Only a second wrong body could hide the first, as seldom as
a CRC of 32 bits misses anything else.

numpy is imported by the first sweep, not before.
"""

import struct
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from headrace.records import BATCH_OVERHEAD_BYTES, HEADER_BYTES
from headrace.records.header import CONTROL_BIT, TRANSACTIONAL_BIT
from headrace.storage.index import SparseIndex
from headrace.storage.producers import REMEMBERED_BATCHES

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Swept", "sweep"]

LEAST_BATCHES = 256  # of fewer, one by one is as fast

_LENGTH = struct.Struct(">8xi")
_MIN_LENGTH = HEADER_BYTES - BATCH_OVERHEAD_BYTES
_UNCOVERED_BYTES = 21
_TO_ALL_ONES = 0x641F6454  # fed to a register of zero, least byte first, it leaves 0xFFFFFFFF
_ZERO_REGISTER = 0xFFFFFFFF  # as `crc32c` counts: it inverts what it is given and what it returns
_IN_TRANSACTION = CONTROL_BIT | TRANSACTIONAL_BIT
_HEADER_FIELDS = [
    ("base_offset", ">i8"),
    ("length", ">i4"),
    ("leader_epoch", ">i4"),
    ("magic", "i1"),
    ("crc", ">u4"),
    ("attributes", ">i2"),
    ("last_offset_delta", ">i4"),
    ("base_timestamp", ">i8"),
    ("max_timestamp", ">i8"),
    ("producer_id", ">i8"),
]
_PATCH_FIELDS = [("to_zero", "<u4"), ("zeros", "V13"), ("to_all_ones", "<u4")]


class Swept(NamedTuple):
    """Whole valid batches from the beginning of a chunk on."""

    starts: list[int]
    size_bytes: int
    next_offset: int
    heads: "npt.NDArray[np.void]"

    def add_to(self, index: SparseIndex, position: int) -> None:
        """Adds what an index notes of them, where `position` is that of the chunk."""
        import numpy as np

        starts, heads = self.starts, self.heads
        bases, timestamps = heads["base_offset"], heads["max_timestamp"].astype(np.int64)
        before = np.maximum.accumulate(np.concatenate(([index.largest_timestamp], timestamps)))
        rank = bisect_left(starts, index.next_at - position)
        while rank < len(starts):
            index.largest_timestamp = int(before[rank])
            index.add(int(bases[rank]), position + starts[rank], int(timestamps[rank]))
            rank = bisect_left(starts, index.next_at - position, rank)
        index.largest_timestamp = int(before[-1])

    def of_producers(self) -> list[int]:
        """Where those stand that count for what is known of producers, in order.

        In transactions every one does, outside of them the last few of each producer.
        """
        import numpy as np

        producer_ids = self.heads["producer_id"].astype(np.int64)
        ranks = np.flatnonzero(producer_ids >= 0)
        if ranks.size and not (self.heads["attributes"][ranks] & _IN_TRANSACTION).any():
            ranks = ranks[np.argsort(producer_ids[ranks], kind="stable")]
            ids = producer_ids[ranks]
            has_enough_behind = np.zeros(ranks.size, bool)
            has_enough_behind[:-REMEMBERED_BATCHES] = ids[:-REMEMBERED_BATCHES] == ids[REMEMBERED_BATCHES:]
            ranks = np.sort(ranks[~has_enough_behind])
        return [self.starts[rank] for rank in ranks]


def sweep(chunk: bytes, next_offset: int, *, gaps: bool) -> Swept | None:
    """The whole batches of `chunk`, up to the first thing that is not one, if every one passes each check.

    None if one fails, or if they are too few for it to be worth while: whoever asked
    then looks at them one by one. The checks are those of `scan`.
    """
    starts, end = _starts(chunk)
    if len(starts) < LEAST_BATCHES:
        return None
    import numpy as np

    at = np.array(starts)
    heads = _at_each_byte(chunk, _HEADER_FIELDS)[at].view(_HEADER_FIELDS)
    bases = heads["base_offset"].astype(np.int64)
    following = bases + heads["last_offset_delta"] + 1
    expected = np.concatenate(([next_offset], following[:-1]))
    in_place = bases >= expected if gaps else bases == expected
    if not in_place.all() or (following <= bases).any():
        return None
    if heads["leader_epoch"].any() or (heads["magic"] != 2).any():
        return None
    if not _checksums_hold(chunk, end, at, heads["crc"].astype(np.uint32)):
        return None
    return Swept(starts, end, int(following[-1]), heads)


def _starts(chunk: bytes) -> tuple[list[int], int]:
    """Where batches begin, by the lengths they claim, and where the last whole one ends."""
    length_of, start, last = _LENGTH.unpack_from, 0, len(chunk) - HEADER_BYTES
    starts: list[int] = []
    add = starts.append
    while start <= last:
        (length,) = length_of(chunk, start)
        if length < _MIN_LENGTH:
            break
        add(start)
        start += length + BATCH_OVERHEAD_BYTES
    if start > len(chunk):
        start = starts.pop()
    return starts, start


def _checksums_hold(
    chunk: bytes, end: int, at: "npt.NDArray[np.int64]", crcs: "npt.NDArray[np.uint32]"
) -> bool:
    """Whether each batch that begins `at` some place, the last of which ends at `end`, has its CRC."""
    import numpy as np

    copy = bytearray(chunk)
    patches = np.zeros(at.size, _PATCH_FIELDS)
    patches["to_zero"][1:] = ~crcs[:-1]
    patches["to_all_ones"] = _TO_ALL_ONES
    places = _at_each_byte(copy, _PATCH_FIELDS)
    places[at] = patches.view(places.dtype)
    return bool(crc32c(memoryview(copy)[:end], _ZERO_REGISTER) == crcs[-1])


def _at_each_byte(buffer: bytes | bytearray, fields: list[tuple[str, str]]) -> "npt.NDArray[np.void]":
    """The structures that begin at each byte of a buffer, without their fields: they are copied faster so."""
    import numpy as np

    size = np.dtype(fields).itemsize
    return np.ndarray((len(buffer) - size + 1,), f"V{size}", buffer, strides=(1,))
