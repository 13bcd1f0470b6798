"""State of tumbling and hopping windows: runs of partials per pane.

A pane is a stretch of time that belongs to the same windows throughout (for a tumbling
window, the window). Rows that came after the first of these had ended count in the later
ones only: they are kept apart, by the end of the first window in which they count. What
arrives is kept in runs, merged when a window of the pane closes. Only what is already
visible, early results and published ones, is looked up when rows come: so a step costs as
much as what it brings and what it closes.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.streams.operators.aggregates.layout import FROM
from headrace.streams.operators.changes import CLOSE, CORRECTION, UPDATE, together
from headrace.streams.operators.grouping import Groups, Ints, one_chunk, runs_of
from headrace.streams.operators.hashing import distinct
from headrace.streams.operators.keys import grouped, hashes_of
from headrace.streams.operators.runs import Held, Runs, in_one_chunk
from headrace.streams.operators.windows.state import OpenWindows, numbers
from headrace.streams.operators.windows.windows import Hopping, Tumbling, ends, first_counted

if TYPE_CHECKING:
    from headrace.streams.operators.windows.operator import WindowOperator

__all__ = ["PaneState"]

_PANE = "_pane"


class PaneState(OpenWindows):
    """Panes by their start, each by the end of the first window in which its rows count."""

    def __init__(self, operator: "WindowOperator") -> None:
        super().__init__(operator)
        assert isinstance(operator.window, Tumbling | Hopping)
        self._window = operator.window
        self._panes: dict[int, dict[int, Runs]] = {}

    @property
    def row_count(self) -> int:
        return sum(runs.row_count for pane in self._panes.values() for runs in pane.values())

    def held(self) -> tuple[Held, ...]:
        """The rows held, and the start of the first pane."""
        return (Held(self.row_count, min(self._panes, default=None)),)

    def _tables(self) -> Sequence[pa.Table]:
        panes = [pane for _, pane in sorted(self._panes.items())]
        return [table for pane in panes for _, runs in sorted(pane.items()) for table in runs.tables]

    def _ends(self, table: pa.Table) -> tuple[Ints, Ints]:
        first, last = ends(self._window, numbers(table, _PANE))
        return (numbers(table, FROM) if isinstance(self._window, Hopping) else first), last

    def _is_cut(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        return self._ends(table)[0] > ends(self._window, numbers(table, _PANE))[0]

    def _earliest(self, table: pa.Table) -> tuple[Ints, Ints]:
        end = self._ends(table)[0]
        return end - self._window.size_us, end

    def _cut(self, table: pa.Table, watermark_us: int) -> list[pa.Table]:
        """A table for each run there was: two of them may now count from the same window on."""
        if not isinstance(self._window, Hopping):
            return [table]
        cut = []
        for _, end, run in self._by_pane([table]):
            counted = first_counted(self._window, np.full(run.num_rows, end), watermark_us)
            cut.append(run.set_column(run.column_names.index(FROM), FROM, pa.array(counted)))
        return cut

    def _condensed(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """One run per pane and first window."""
        panes: dict[tuple[int, int], list[pa.Table]] = {}
        for pane, end, run in self._by_pane(tables):
            panes.setdefault((pane, end), []).append(run)
        return [
            self._merge(in_one_chunk(runs)) if len(runs) > 1 else runs[0] for _, runs in sorted(panes.items())
        ]

    def _add(self, tables: Sequence[pa.Table]) -> None:
        for start, end, run in self._by_pane(tables):
            pane = self._panes.setdefault(start, {})
            if end not in pane:
                pane[end] = Runs(self._merge)
            pane[end].add(run)

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
        for pane, by_end in self._panes.items():
            first, last = self._windows_with(pane, min(by_end))
            first = max(first, (self.watermark_us - size_us) // step_us + 1)
            last = min(last, (watermark_us - size_us) // step_us)
            due.update(each * step_us for each in range(first, last + 1))
        return sorted(due)

    def _windows_with(self, pane: int, end: int) -> tuple[int, int]:
        """The numbers of the first and the last window in which rows of the pane count, from this end on."""
        return (end - self._window.size_us) // self._window.step_us, pane // self._window.step_us

    def _runs_of(self, start: int) -> Iterator[Runs]:
        """What counts in the window."""
        size_us = self._window.size_us
        for pane in range(start, start + size_us, self._window.pane_us):
            for end, runs in self._panes.get(pane, {}).items():
                if end <= start + size_us:
                    yield runs

    def _closed(self, start: int) -> pa.Table:
        runs = [each.merged() for each in self._runs_of(start)]
        merged = self._merge(in_one_chunk(runs)) if len(runs) > 1 else runs[0]
        return self._published(merged, self._bounds(start, merged), CLOSE, None)

    def _corrections(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """What the partials, which are still to be added, change of windows that are visible."""
        arrived: dict[int, list[pa.Table]] = {}
        for pane, end, run in self._by_pane(tables):
            for start in self._visible(pane, end):
                arrived.setdefault(start, []).append(run)
        return [self._corrected(start, in_one_chunk(arrived[start])) for start in sorted(arrived)]

    def _visible(self, pane: int, end: int) -> list[int]:
        """The windows in which such rows count, by their start, of which results were published."""
        first, last = self._windows_with(pane, end)
        if self.operator.emit == "close":
            last = min(last, (self.watermark_us - self._window.size_us) // self._window.step_us)
        return [each * self._window.step_us for each in range(first, last + 1)]

    def _corrected(self, start: int, arrived: pa.Table) -> pa.Table:
        hashes = distinct(hashes_of(arrived))
        found = [runs.find(hashes) for runs in self._runs_of(start)]
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
        kind = CORRECTION if published else UPDATE
        return self._published(after, self._bounds(start, after), kind, before)

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
        first = pa.array(groups.representatives)
        return self.layout.merged(
            table, groups, [one_chunk(table[name]).take(first) for name in self.layout.places]
        )

    def _by_pane(self, tables: Sequence[pa.Table]) -> Iterator[tuple[int, int, pa.Table]]:
        """The runs of partials: pane, end of the first window in which they count, rows."""
        for table in tables:
            panes, firsts = numbers(table, _PANE), self._ends(table)[0]
            starts = runs_of(panes, firsts).tolist()
            for begin, end in zip(starts, [*starts[1:], len(panes)], strict=True):
                yield int(panes[begin]), int(firsts[begin]), table.slice(begin, end - begin)
