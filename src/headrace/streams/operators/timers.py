"""Which keys have something due, by time: found without a look at the state."""

import numpy as np

from headrace.streams.operators.grouping import Ints, runs_of
from headrace.streams.operators.hashing import Hashes

__all__ = ["Timers"]


class Timers:
    """Hashes of keys by the time at which to look at them, in slots of time.

    A timer may be obsolete when it comes up; it is never missing.
    """

    def __init__(self, slot_us: int) -> None:
        self._slot_us = slot_us
        self._slots: dict[int, list[tuple[Ints, Hashes]]] = {}

    def add(self, times_us: Ints, hashes: Hashes) -> None:
        if not len(times_us):
            return
        order = np.argsort(times_us)
        times_us, hashes = times_us[order], hashes[order]
        starts = runs_of(times_us // self._slot_us).tolist()
        for begin, end in zip(starts, [*starts[1:], len(times_us)], strict=True):
            slot = int(times_us[begin]) // self._slot_us
            self._slots.setdefault(slot, []).append((times_us[begin:end], hashes[begin:end]))

    def due(self, time_us: int) -> Hashes:
        """The hashes whose time has come, which are forgotten."""
        found: list[Hashes] = []
        for slot in [each for each in self._slots if each * self._slot_us <= time_us]:
            for times, hashes in self._slots.pop(slot):
                due = times <= time_us
                found.append(hashes[due])
                if not due.all():
                    self._slots.setdefault(slot, []).append((times[~due], hashes[~due]))
        return np.concatenate(found) if found else np.zeros(0, np.uint64)
