"""Checks of batches, one behind the other: of whole ones, of pieces of them, and on their way to a socket."""

import ctypes
from array import array
from enum import IntEnum
from typing import NamedTuple

from headrace.kernels.shared_library import INT, library

__all__ = [
    "ENTRY_FIELDS",
    "MISPLACED",
    "MOST_PARTS",
    "PRODUCER_FIELDS",
    "WRONG_SUM",
    "Check",
    "SendDescriptors",
    "SendOutcome",
    "SendProgress",
    "SendWindow",
    "Walk",
    "check_bytes",
    "send_checked",
    "sum_bytes",
    "walk_batches",
]

MISPLACED, WRONG_SUM = 1, 2  # faults
_HEADER_BYTES = 61
ENTRY_FIELDS, PRODUCER_FIELDS = 3, 2
MOST_PARTS = 8  # of a window

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


class Check(ctypes.Structure):
    """Where a check of bytes that come in pieces stands: in the batch that begins at `position`."""

    _fields_ = (
        ("walk", Walk),
        *((name, INT) for name in ("position", "size", "left", "next", "sum", "sum_so_far", "header_bytes")),
        ("header", ctypes.c_uint8 * _HEADER_BYTES),
    )
    walk: Walk
    position: int


def check_bytes(data: bytes | bytearray | memoryview, check: Check) -> int:
    """Checks the next bytes as `walk_batches` does; the fault of the batch they end in, or 0.

    A view must be one of writable bytes.
    """
    size = len(data)
    if not size:
        return 0
    held = data if isinstance(data, bytes) else ctypes.byref(_from_buffer(data))
    return int(_library.check_bytes(held, size, ctypes.byref(check)))


class SendOutcome(IntEnum):
    """Why `send_checked` returned."""

    ENDED = 0
    TURN_IS_OVER = 1
    SOCKET_IS_FULL = 2
    NOT_IN_MEMORY = 3
    HAS_A_FAULT = 4
    UNREADABLE = 5


class SendDescriptors(NamedTuple):
    """Descriptors: from where, to where, and one that is readable when others have something to do, or -1."""

    file: int
    socket: int
    others: int = -1


class SendProgress(ctypes.Structure):
    """A stretch of a file on its way to a socket: what is to be read, what of the window is to be sent."""

    _fields_ = tuple((name, INT) for name in ("position", "end", "start", "stop", "error"))
    position: int
    end: int
    start: int
    stop: int
    error: int


class SendWindow(NamedTuple):
    """Memory for bytes on their way, and how many of them may be left when a socket takes no more.

    It has room for 1 to `MOST_PARTS` times as many.
    """

    octets: memoryview
    part: int


def send_checked(
    route: SendDescriptors, window: SendWindow, filled: int, most: int, check: Check, sending: SendProgress
) -> SendOutcome:
    """Sends the first `filled` bytes of the window, then those of the file, checked, a window at a time.

    Until about `most` bytes are sent, others have something to do, or for another reason.
    What is left of them in the window, from `start` to `stop`, is the caller's to send: less
    than a part at the end, and at most one where the socket is full.
    """
    return SendOutcome(
        _library.send_checked(
            *route,
            ctypes.byref(_from_buffer(window.octets)),
            len(window.octets),
            window.part,
            filled,
            most,
            ctypes.byref(check),
            ctypes.byref(sending),
        )
    )


def sum_bytes(data: bytes, *, by_table: bool = False) -> int:
    """CRC-32C; `by_table` as on a processor without an instruction for it."""
    return int(_library.sum_bytes(data, len(data), by_table))
