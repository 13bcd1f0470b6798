"""State of tumbling and hopping windows: runs of partials per pane.

A pane is a stretch of time that belongs to the same windows throughout (for a tumbling
window, the window). What arrives for it is kept in runs, merged when a window of it
closes. Only what is already visible, early results and published ones, is looked up
when rows come: so a step costs as much as what it brings and what it closes.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.streams.operators.changes import CLOSE, CORRECTION, UPDATE, change_table, instants, together
from headrace.streams.operators.grouping import Groups, Ints, one_chunk, runs_of
from headrace.streams.operators.hashing import distinct
from headrace.streams.operators.keys import grouped, hashes_of
from headrace.streams.operators.runs import Runs, in_one_chunk
from headrace.streams.operators.state import OperatorState, numbers
from headrace.streams.operators.windows import Hopping, Tumbling

if TYPE_CHECKING:
    from headrace.streams.operators.operator import WindowOperator

__all__ = ["PaneState"]

_PANE = "_pane"


class PaneState(OperatorState):
    """Panes by their start."""

    def __init__(self, operator: "WindowOperator") -> None:
        super().__init__(operator)
        assert isinstance(operator.window, Tumbling | Hopping)
        self._window = operator.window
        self._panes: dict[int, Runs] = {}

    @property
    def row_count(self) -> int:
        return sum(pane.row_count for pane in self._panes.values())

    def _tables(self) -> Sequence[pa.Table]:
        return [table for start in sorted(self._panes) for table in self._panes[start].tables]

    def _deadlines(self, table: pa.Table) -> Ints:
        return numbers(table, _PANE) + self._window.pane_us

    def _windows(self, table: pa.Table) -> list[pa.Array]:
        panes = numbers(table, _PANE)
        return [instants(panes), instants(panes + self._window.pane_us)]

    def _condensed(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """One run per pane."""
        panes: dict[int, list[pa.Table]] = {}
        for start, run in _by_pane(tables):
            panes.setdefault(start, []).append(run)
        return [
            self._merge(in_one_chunk(runs)) if len(runs) > 1 else runs[0] for _, runs in sorted(panes.items())
        ]

    def _add(self, tables: Sequence[pa.Table]) -> None:
        for start, run in _by_pane(tables):
            if start not in self._panes:
                self._panes[start] = Runs(self._merge)
            self._panes[start].add(run)

    def _changed(self, tables: Sequence[pa.Table], watermark_us: int) -> pa.Table | None:
        changes = self._corrections(tables)
        self._add(tables)
        if self.operator.emit == "close":
            changes += [self._closed(start) for start in self._due(watermark_us)]
        return together(changes)

    @property
    def _kept_us(self) -> int:
        """How long a pane is held, from its start."""
        return self._window.size_us + self.operator.keep_us

    def _forget(self) -> None:
        for start in [each for each in self._panes if each + self._kept_us <= self.watermark_us]:
            del self._panes[start]

    def _lasting(self, tables: Sequence[pa.Table], watermark_us: int) -> Sequence[pa.Table]:
        """Who catches up opens and closes most panes within one step: those are not stored."""
        lasting = []
        for table in tables:
            held = numbers(table, _PANE) + self._kept_us > watermark_us
            if held.any():
                lasting.append(table if held.all() else table.filter(pa.array(held)))
        return lasting

    def _due(self, watermark_us: int) -> list[int]:
        """The windows, by their start, that close when the watermark moves, and have rows."""
        size_us, step_us = self._window.size_us, self._window.step_us
        due: set[int] = set()
        for pane in self._panes:
            first, last = self._windows_with(pane)
            first = max(first, (self.watermark_us - size_us) // step_us + 1)
            last = min(last, (watermark_us - size_us) // step_us)
            due.update(each * step_us for each in range(first, last + 1))
        return sorted(due)

    def _windows_with(self, pane: int) -> tuple[int, int]:
        """The numbers of the first and the last window that the pane is in."""
        return (pane - self._window.size_us) // self._window.step_us + 1, pane // self._window.step_us

    def _panes_of(self, start: int) -> range:
        return range(start, start + self._window.size_us, self._window.pane_us)

    def _closed(self, start: int) -> pa.Table:
        runs = [self._panes[pane].merged() for pane in self._panes_of(start) if pane in self._panes]
        merged = self._merge(in_one_chunk(runs)) if len(runs) > 1 else runs[0]
        after = self.layout.finished(merged)
        return change_table(self.layout, merged, self._bounds(start, merged), CLOSE, None, after)

    def _corrections(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """What the partials, which are still to be added, change of windows that are visible."""
        arrived: dict[int, list[pa.Table]] = {}
        for pane, run in _by_pane(tables):
            for start in self._visible(pane):
                arrived.setdefault(start, []).append(run)
        return [self._corrected(start, in_one_chunk(arrived[start])) for start in sorted(arrived)]

    def _visible(self, pane: int) -> list[int]:
        """The windows of a pane, by their start, of which results were published."""
        first, last = self._windows_with(pane)
        if self.operator.emit == "close":
            last = min(last, (self.watermark_us - self._window.size_us) // self._window.step_us)
        return [each * self._window.step_us for each in range(first, last + 1)]

    def _corrected(self, start: int, arrived: pa.Table) -> pa.Table:
        hashes = distinct(hashes_of(arrived))
        found = [self._panes[pane].find(hashes) for pane in self._panes_of(start) if pane in self._panes]
        held = [table for table in found if table is not None]
        table = in_one_chunk([*held, arrived])
        old = np.arange(table.num_rows) < table.num_rows - arrived.num_rows
        order, groups = grouped(table, self.layout.keys)
        table, old = table.take(pa.array(order)), old[order]
        touched = groups.minimum(old.view(np.int8), 1) == 0
        after = self._reduced(table, groups)
        before = self._before(table, groups, old)
        if not touched.all():  # only where another key has the same hash
            rows = pa.array(np.flatnonzero(touched))
            after, before = after.take(rows), before.take(rows)
        published = start + self._window.size_us <= self.watermark_us
        return change_table(
            self.layout,
            after,
            self._bounds(start, after),
            CORRECTION if published else UPDATE,
            before,
            self.layout.finished(after),
        )

    def _before(self, table: pa.Table, groups: Groups, old: npt.NDArray[np.bool_]) -> pa.Array:
        """The results of each group from its old rows alone; null where there are none."""
        rows = np.flatnonzero(old)
        if not len(rows):
            return pa.nulls(groups.count, self.layout.result_struct)
        starts = runs_of(groups.ids[rows])
        reduced = self._reduced(table.take(pa.array(rows)), Groups.adjacent(starts, len(rows)))
        places = np.full(groups.count, -1)
        places[groups.ids[rows[starts]]] = np.arange(len(starts))
        return self.layout.finished(reduced).take(pa.array(places, mask=places < 0))

    def _bounds(self, start: int, table: pa.Table) -> tuple[Ints, Ints]:
        starts = np.full(table.num_rows, start)
        return starts, starts + self._window.size_us

    def _merge(self, table: pa.Table) -> pa.Table:
        order, groups = grouped(table, self.layout.keys)
        return self._reduced(table.take(pa.array(order)), groups)

    def _reduced(self, table: pa.Table, groups: Groups) -> pa.Table:
        places = [one_chunk(table[_PANE]).take(pa.array(groups.representatives))]
        return self.layout.merged(table, groups, places)


def _by_pane(tables: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
    for table in tables:
        panes = numbers(table, _PANE)
        starts = runs_of(panes).tolist()
        for begin, end in zip(starts, [*starts[1:], len(panes)], strict=True):
            yield int(panes[begin]), table.slice(begin, end - begin)
