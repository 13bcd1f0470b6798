"""Which keys have something due, by time: found without a look at the state."""

import numpy as np

from headrace.streams.operators.grouping import Ints
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
        slots = times_us // self._slot_us
        for slot in np.unique(slots).tolist():
            here = slots == slot
            self._slots.setdefault(slot, []).append((times_us[here], hashes[here]))

    def due(self, time_us: int) -> Hashes:
        """The hashes, distinct and ascending, whose time has come; they are forgotten."""
        found: list[Hashes] = []
        for slot in [each for each in self._slots if each * self._slot_us <= time_us]:
            for times, hashes in self._slots.pop(slot):
                due = times <= time_us
                found.append(hashes[due])
                if not due.all():
                    self._slots.setdefault(slot, []).append((times[~due], hashes[~due]))
        return np.unique(np.concatenate(found)) if found else np.zeros(0, np.uint64)
