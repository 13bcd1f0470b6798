"""The bytes of a block of values, and what stands at many places in them at once; no Spark, no I/O.

Everything here is one pass of numpy over all values. Bytes at arbitrary places are
gathered as words of eight: a view of the bytes with an element for every position.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Ints", "Text"]

Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

_ZERO = 0x30
_WORD = 8
_MAX_DIGITS = 2 * _WORD
_ALL_ZEROS, _HIGH_BITS = np.uint64(0x3030303030303030), np.uint64(0x8080808080808080)
_BEYOND_NINE = np.uint64(0x7676767676767676)  # lifts the high bit of every byte from ten on
_EVERY_OTHER_PAIR = np.uint64(0x000000FF000000FF)


@dataclass(frozen=True, slots=True)
class Text:
    """The bytes of all values one behind the other, and where each begins and ends.

    Places are given in ascending order.
    """

    octets: Octets
    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, values: pa.Array) -> Self:
        """Of an array of binaries without nulls, whose bytes are not copied."""
        _, bounds, content = values.buffers()
        offsets = np.frombuffer(bounds, np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
        first, last = int(offsets[0]), int(offsets[-1])
        octets = (
            np.frombuffer(content, np.uint8, last - first, first) if last > first else np.zeros(0, np.uint8)
        )
        return cls(octets, offsets[:-1] - first, offsets[1:] - first)

    def _words_from(self, places: Ints, words: int) -> Words:
        """So many words from each place on, a row for each; all must lie within the bytes."""
        size = words * _WORD
        every = np.ndarray((max(len(self.octets) - size + 1, 0),), f"V{size}", self.octets, 0, (1,))
        return every[places].view("<u8").reshape(len(places), words)

    def has(self, text: bytes, places: Ints) -> bool:
        """Whether this text stands at every place."""
        for start in range(0, len(text), 2 * _WORD):
            if not self._has_piece(text[start : start + 2 * _WORD], places + start if start else places):
                return False
        return True

    def _has_piece(self, piece: bytes, places: Ints) -> bool:
        if len(piece) == 1:
            return bool((self.octets[places] == piece[0]).all())
        words = -(-len(piece) // _WORD)
        size = words * _WORD
        inner = int(np.searchsorted(places, len(self.octets) - size, side="right"))
        if any(self.octets[at : at + len(piece)].tobytes() != piece for at in places[inner:].tolist()):
            return False
        if not inner:
            return True
        found = self._words_from(places[:inner], words)
        right = np.frombuffer(piece.ljust(size, b"\0"), "<u8")
        mask = np.frombuffer((b"\xff" * len(piece)).ljust(size, b"\0"), "<u8")  # what lies behind the piece
        return all(bool((found[:, at] & mask[at] == right[at]).all()) for at in range(words))

    def counts(self, octet: int) -> Ints:
        """How often each value holds this byte."""
        found = np.flatnonzero(self.octets == octet)
        return np.diff(np.searchsorted(found, np.append(self.starts, len(self.octets))))

    def contents(self, first: Ints, last: Ints) -> pa.Array:
        """What lies between these places, as binaries.

        Contents and gaps in turn are one array over the same bytes; every other element is taken.
        """
        bounds = np.empty(2 * len(first) + 1, np.int32)
        bounds[0:-1:2], bounds[1::2], bounds[-1] = first, last, len(self.octets)
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self.octets)]
        both = pa.Array.from_buffers(pa.binary(), 2 * len(first), buffers)
        return both.take(pa.array(np.arange(0, 2 * len(first), 2)))

    def integers(self, first: Ints, last: Ints) -> Ints | None:
        """What lies between these places, if each is an integer of JSON without a sign and not too long."""
        lengths = last - first
        if not len(lengths) or lengths.min() < 1 or lengths.max() > _MAX_DIGITS:
            return None
        leading = self.octets[first] - _ZERO
        if not (((leading > 0) | (lengths == 1)) & (leading < 10)).all():
            return None
        words = 1 if lengths.max() <= _WORD else 2
        outer = int(np.searchsorted(last, words * _WORD))  # their words would begin before the bytes do
        found = self._words_from(last[outer:] - words * _WORD, words)
        numbers = _digits(found[:, -1], np.minimum(lengths[outer:], _WORD))
        if numbers is not None and words == 2:
            heads = _digits(found[:, 0], np.maximum(lengths[outer:] - _WORD, 0))
            numbers = None if heads is None else heads * np.uint64(10**_WORD) + numbers
        begun = [self.octets[a:b].tobytes() for a, b in zip(first[:outer], last[:outer], strict=True)]
        if numbers is None or not all(each.isdigit() for each in begun):
            return None
        return np.concatenate((np.array([*map(int, begun)], np.int64), numbers.view(np.int64)))


def _digits(words: Words, counts: Ints) -> Words | None:
    """The numbers that the last so many of eight digits are; None if something there is no digit.

    The first digit is in the lowest byte. Neighbours are joined three times: to numbers
    below a hundred, ten thousand, and a hundred million.
    """
    unused = ((_WORD - counts) * 8).astype(np.uint64)
    digits = (words ^ _ALL_ZEROS) >> unused << unused
    if (((digits + _BEYOND_NINE) | digits) & _HIGH_BITS).any():
        return None
    pairs = digits * np.uint64(10) + (digits >> np.uint64(8))
    upper = (pairs & _EVERY_OTHER_PAIR) * np.uint64(100 + (1_000_000 << 32))
    lower = (pairs >> np.uint64(16) & _EVERY_OTHER_PAIR) * np.uint64(1 + (10_000 << 32))
    return upper + lower >> np.uint64(32)
