"""Where records lie, what stands in JSON that looks alike, which texts are equal; with numpy's arrays."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from headrace.kernels.shared_library import INT, POINTER, library

__all__ = [
    "PARTS",
    "JsonCell",
    "JsonContents",
    "JsonKind",
    "gather",
    "lay_out_batches",
    "lay_out_headers",
    "lay_out_records",
    "number_texts",
    "read_objects",
]

Ints = npt.NDArray[np.int64]
Bounds = npt.NDArray[np.int32]
Octets = npt.NDArray[np.uint8]

PARTS, HEADER_PARTS = 9, 4

_WORD = bytes(8)  # what the library may read behind a text of ours, or write behind one of the data's
_LEAST_PLACES_BITS, _PLACE_WORDS = 10, 2


class _Cell(ctypes.Structure):
    _fields_ = (
        ("before", ctypes.c_char_p),  # and a word more
        ("before_length", INT),
        ("kind", INT),
        ("least", INT),
        ("most", INT),
        ("numbers", POINTER),
        ("octets", POINTER),
        ("bounds", POINTER),
    )


_library = library()


# --- records ------------------------------------------------------------------------------------


def lay_out_records(
    data: Octets, begin: int, end: int, count: int, base_offset: int, base_timestamp: int, parts: Ints
) -> int:
    """Where the parts of a batch's records lie, one row of `parts` for each of PARTS.

    Offset, timestamp, start and length of key and value (-1 is null), number and start of
    the headers, and the end. Returns how many of the records fit; -1 if bytes are left over.
    """
    return int(
        _library.lay_out_records(
            _at(data),
            begin,
            end,
            count,
            base_offset,
            base_timestamp,
            _rows(parts, PARTS, count),
            _stride(parts),
        )
    )


def lay_out_batches(data: Octets) -> Ints | None:
    """As `lay_out_records`, of whole batches one behind the other, in place; without control batches.

    None if one is compressed, or anything is wrong with one: look at each.
    """
    count = int(_library.count_records(_at(data), len(data)))
    if count < 0:
        return None
    parts = np.empty((PARTS, count), np.int64)
    found = int(_library.lay_out_batches(_at(data), len(data), _at(parts), count))
    return parts if found == count else None


def lay_out_headers(data: Octets, counts: Ints, starts: Ints, ends: Ints) -> tuple[Ints, int]:
    """Start and length of name and content of every header, and of how many records they fit."""
    parts = np.empty((HEADER_PARTS, int(counts.sum())), np.int64)
    counts, starts, ends = map(np.ascontiguousarray, (counts, starts, ends))
    fitting = _library.lay_out_headers(
        _at(data), len(counts), _at(counts), _at(starts), _at(ends), _at(parts), parts.shape[1]
    )
    return parts, int(fitting)


def gather(data: Octets, starts: Ints, lengths: Ints) -> tuple[Bounds, Octets]:
    """What lies at these places, one behind the other, and where each begins there; of -1, nothing."""
    starts, lengths = np.ascontiguousarray(starts), np.ascontiguousarray(lengths)
    bounds = np.empty(len(starts) + 1, np.int32)
    octets = np.empty(int(np.maximum(lengths, 0).sum()), np.uint8)
    _library.gather(_at(data), len(starts), _at(starts), _at(lengths), _at(bounds), _at(octets))
    return bounds, octets


# --- JSON ---------------------------------------------------------------------------------------


class JsonKind(IntEnum):
    """What stands in a cell, as `kernels.c` numbers it."""

    TEXT = 1
    NUMBER = 2
    INTEGER = 3
    BOOLEAN = 4


@dataclass(frozen=True, slots=True)
class JsonCell:
    """One member of an object: the text before its content, and what that must be.

    `wanted` says whether the content is kept; integers outside of the range do not fit.
    """

    before: bytes
    kind: JsonKind
    wanted: bool
    least: int = 0
    most: int = 0


@dataclass(frozen=True, slots=True)
class JsonContents:
    """What one cell holds in all objects.

    Integers are in `numbers`, texts (those of numbers too) in `octets` and `bounds`, booleans
    in `octets`, a byte each.
    """

    numbers: Ints | None = None
    octets: Octets | None = None
    bounds: Bounds | None = None


def read_objects(
    data: Octets, starts: Ints, lengths: Ints, cells: Sequence[JsonCell], behind: bytes
) -> tuple[npt.NDArray[np.bool_], list[JsonContents]]:
    """Which values are objects of exactly these cells, and what each cell holds.

    A value of length -1 is a null, and none. Of a value that is no such object, the cells
    hold anything, but each text is within `octets`.
    """
    count = len(starts)
    starts, lengths = np.ascontiguousarray(starts), np.ascontiguousarray(lengths)
    size = int(lengths.sum()) + count  # nulls count as -1
    found = [_room(cell, count, size) for cell in cells]
    passed = (_Cell * len(cells))(
        *(
            _Cell(
                cell.before + _WORD,
                len(cell.before),
                cell.kind,
                cell.least,
                cell.most,
                *(None if each is None else _at(each) for each in (room.numbers, room.octets, room.bounds)),
            )
            for cell, room in zip(cells, found, strict=True)
        )
    )
    fitting = np.empty(count, np.bool_)
    _library.read_objects(
        *(_at(data), count, _at(starts), _at(lengths)),
        *(passed, len(cells), behind + _WORD, len(behind), _at(fitting)),
    )
    return fitting, found


def _room(cell: JsonCell, count: int, size: int) -> JsonContents:
    if cell.kind is JsonKind.INTEGER:
        return JsonContents(numbers=np.empty(count, np.int64))
    if not cell.wanted:
        return JsonContents()
    if cell.kind is JsonKind.BOOLEAN:
        return JsonContents(octets=np.empty(count, np.uint8))
    bounds = np.empty(count + 1, np.int32)
    bounds[0] = 0
    return JsonContents(octets=np.empty(size + len(_WORD), np.uint8), bounds=bounds)


# --- texts --------------------------------------------------------------------------------------


def number_texts(octets: Octets, bounds: Bounds) -> tuple[Ints, Ints, npt.NDArray[np.uint64]]:
    """Numbers texts, equal ones alike, as they first occur.

    The number of each; and for each number a text that has it, and that text's hash, which
    is the one of `headrace.column_hash`.
    """
    count = len(bounds) - 1
    bounds = np.ascontiguousarray(bounds)
    ids, firsts, hashes = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.uint64)
    places = np.empty((1 << max(_LEAST_PLACES_BITS, (2 * count).bit_length()), _PLACE_WORDS), np.int64)
    known = int(
        _library.number_texts(
            _at(octets), _at(bounds), count, _at(ids), _at(firsts), _at(hashes), _at(places)
        )
    )
    return ids, firsts[:known], hashes[:known]


def _at(array: npt.NDArray[np.generic]) -> int:
    return array.ctypes.data


def _rows(parts: Ints, rows: int, count: int) -> int:
    """The address of a table that the library may write `count` numbers into each row of."""
    fits = parts.dtype == np.int64 and parts.shape[0] == rows and parts.shape[1] >= count
    if not fits or (count and parts.strides[1] != parts.itemsize):
        raise ValueError(f"{rows} rows of {count} numbers are needed, not {parts.shape} of {parts.dtype}")
    return _at(parts)


def _stride(parts: Ints) -> int:
    return parts.strides[0] // parts.itemsize
