"""Where hashes are among others that ascend."""

from functools import cached_property

import numpy as np

from headrace.column_hash import Hashes
from headrace.streams.operators.grouping import Ints

__all__ = ["HashIndex"]

_LARGE = 1 << 17  # fewer are in the processor's caches, where bisection is as fast
_ROWS = 4  # between two starts
_FEW_STEPS = 16


class HashIndex:
    """Hashes that ascend. In many of them, one is found by its first bits, which say where it is.

    Hashes are spread evenly, so a few steps from there are enough, whatever their number; bisection takes
    one more step, to a place that no cache has, whenever it doubles. Where one hash is there so often that
    the steps are not few, the rest is bisected.
    """

    __slots__ = ("__dict__", "hashes")

    def __init__(self, hashes: Hashes) -> None:
        self.hashes = hashes

    def places_of(self, wanted: Hashes) -> tuple[Ints, Ints, Ints]:
        """Which of the wanted hashes are there, and where each of these begins and ends; they ascend.

        Most are there once, so that the end need not be looked for.
        """
        held = self.hashes
        last = len(held) - 1
        if last < 0:
            return (np.zeros(0, np.int64),) * 3
        begins = self._begins(wanted)
        there = np.flatnonzero(held[np.minimum(begins, last)] == wanted)
        begins, found = begins[there], wanted[there]
        ends = begins + 1
        more = np.flatnonzero((held[np.minimum(ends, last)] == found) & (ends <= last))
        ends[more] = np.searchsorted(held, found[more], "right")
        return there, begins, ends

    def _begins(self, wanted: Hashes) -> Ints:
        """The first place whose hash is not below each of the wanted."""
        held = self.hashes
        if len(held) < _LARGE:
            return np.asarray(np.searchsorted(held, wanted, "left"))
        begins: Ints = self._starts[wanted >> self._shift]
        below = np.arange(len(wanted))
        for _ in range(_FEW_STEPS):
            at = begins[below]
            below = below[(at < len(held)) & (held[np.minimum(at, len(held) - 1)] < wanted[below])]
            if not len(below):
                return begins
            begins[below] += 1
        begins[below] = np.searchsorted(held, wanted[below], "left")
        return begins

    @cached_property
    def _shift(self) -> np.uint64:
        """How many of the last bits of a hash say nothing of where it is."""
        return np.uint64(64 - (len(self.hashes) // _ROWS).bit_length())

    @cached_property
    def _starts(self) -> Ints:
        """For all first bits, the place of the first hash that has them, or of the next."""
        firsts = np.arange(1 << (64 - int(self._shift)), dtype=np.uint64) << self._shift
        return np.searchsorted(self.hashes, firsts, "left")
