"""Checks of whole batches, one behind the other: a walk, called with bytes."""

import ctypes
from array import array

from headrace.kernels.library import INT, library

__all__ = ["ENTRY_FIELDS", "MISPLACED", "PRODUCER_FIELDS", "WRONG_SUM", "Walk", "sum_bytes", "walk_batches"]

MISPLACED, WRONG_SUM = 1, 2  # faults
ENTRY_FIELDS, PRODUCER_FIELDS = 3, 2

_library = library()
_from_buffer = ctypes.c_char.from_buffer


class Walk(ctypes.Structure):
    """Where a walk stands (`next_offset`, `largest_timestamp`), and what its last call met.

    `fault` is that of the batch before which it ended, 0 if that is only not all there.
    """

    _fields_ = tuple(
        (name, INT)
        for name in (
            "next_offset",
            "gaps",
            "largest_timestamp",
            "index_at",
            "index_interval",
            "entry_count",
            "producer_count",
            "transactional",
            "fault",
        )
    )
    next_offset: int
    gaps: bool
    largest_timestamp: int
    index_at: int
    index_interval: int
    entry_count: int
    producer_count: int
    transactional: int
    fault: int


def walk_batches(
    data: bytes | bytearray | memoryview,
    begin: int,
    walk: Walk,
    entries: "array[int] | None" = None,
    producers: "array[int] | None" = None,
) -> int:
    """Checks the batches of `data` from `begin` on, and returns where the first begins that fails or is cut.

    A batch must have the walk's next offset (at least that with `gaps`), leader epoch 0,
    magic 2, and its CRC. `entries` and `producers`, if given, take what an index notes and
    where batches with a producer id are; each has room for a batch in 61 bytes. A view
    must be one of writable bytes.
    """
    size = len(data)
    if begin >= size:
        walk.entry_count = walk.producer_count = walk.fault = 0
        return begin
    held = data if isinstance(data, bytes) else ctypes.byref(_from_buffer(data))
    return int(
        _library.walk_batches(
            held,
            begin,
            size,
            ctypes.byref(walk),
            None if entries is None else entries.buffer_info()[0],
            None if producers is None else producers.buffer_info()[0],
        )
    )


def sum_bytes(data: bytes, *, by_table: bool = False) -> int:
    """CRC-32C; `by_table` as on a processor without an instruction for it."""
    return int(_library.sum_bytes(data, len(data), by_table))
