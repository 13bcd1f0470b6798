"""What session and sliding state have in common: windows that events themselves place.

Rows of a key are held as runs, found again by hash. A step looks at the keys that it
brings and at those whose results are due, and compares what was visible before it with
what is now.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.column_hash import Hashes
from headrace.streams.event_time import NO_WATERMARK
from headrace.streams.operators.changes import together
from headrace.streams.operators.grouping import Ints, runs_of
from headrace.streams.operators.hashing import distinct
from headrace.streams.operators.keys import hashes_of
from headrace.streams.operators.runs import Runs, in_one_chunk
from headrace.streams.operators.windows.state import OpenWindows

if TYPE_CHECKING:
    from headrace.streams.operators.windows.operator import WindowOperator

__all__ = ["EventState"]


class EventState(OpenWindows):
    """`span_us` is how far a window reaches: the gap of a session, the size of a sliding window."""

    def __init__(self, operator: "WindowOperator", span_us: int) -> None:
        super().__init__(operator)
        self._held = Runs(self._merge)
        self._timers = Timers(max(span_us // 16, 1_000_000))
        self._swept_us = NO_WATERMARK

    @property
    @abstractmethod
    def _lifetime_us(self) -> int:
        """How long a row is held at least, by event time."""

    @abstractmethod
    def _due(self, table: pa.Table) -> Ints:
        """The watermark at which the result of each row is published."""

    @abstractmethod
    def _gone(self, table: pa.Table) -> Ints:
        """The watermark from which each row can no longer matter."""

    @abstractmethod
    def _ordered(self, table: pa.Table) -> tuple[Ints, Ints]:
        """An order by key and time; and the number of each row's key, in that order."""

    @abstractmethod
    def _merge(self, table: pa.Table) -> pa.Table:
        """The same rows as one run."""

    @abstractmethod
    def _compared(
        self, table: pa.Table, keys: Ints, is_new: npt.NDArray[np.bool_], watermark_us: int
    ) -> list[pa.Table]:
        """The changes of these keys, all of whose rows are here, in order: what was visible, what now is."""

    @property
    def row_count(self) -> int:
        return self._held.row_count

    def _tables(self) -> Sequence[pa.Table]:
        return self._held.tables

    def _condensed(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        return [self._merge(in_one_chunk(tables))] if len(tables) > 1 else list(tables)

    def _add(self, tables: Sequence[pa.Table]) -> None:
        for table in tables:
            self._held.add(table)
            if self.operator.emit == "close":
                due = self._due(table)
                later = due > self.watermark_us
                self._timers.add(due[later], hashes_of(table)[later])

    def _forget(self) -> None:
        """Sweeps once per lifetime of a row, so that a sweep costs what came in since."""
        if self._swept_us == NO_WATERMARK:
            self._swept_us = self.watermark_us
        if self.watermark_us - self._swept_us < self._lifetime_us:
            return
        self._swept_us = self.watermark_us
        table = self._held.merged()
        if table is not None:
            kept = self._gone(table) > self.watermark_us
            if not kept.all():
                self._held.replace(table.filter(pa.array(kept)))

    def _changed(self, tables: Sequence[pa.Table], watermark_us: int) -> pa.Table | None:
        hashes = self._timers.due(watermark_us)
        if tables:
            hashes = np.concatenate([hashes, *(hashes_of(table) for table in tables)])
        if not len(hashes):
            return None
        held = self._held.find(distinct(hashes))
        changes = self._looked_at(held, tables, watermark_us)
        self._add(tables)
        return together(changes)

    def _looked_at(
        self, held: pa.Table | None, arrived: Sequence[pa.Table], watermark_us: int
    ) -> list[pa.Table]:
        parts = [*([] if held is None else [held]), *arrived]
        if not parts:
            return []
        table = in_one_chunk(parts)
        is_new = np.arange(table.num_rows) >= (0 if held is None else held.num_rows)
        order, keys = self._ordered(table)
        return self._compared(table.take(pa.array(order)), keys, is_new[order], watermark_us)


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
