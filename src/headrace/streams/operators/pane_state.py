"""State of tumbling and hopping windows: runs of partials per pane.

A pane is the stretch of time that belongs to the same windows throughout. What arrives
for it is kept as runs ordered by hash and merged when the pane's windows close, or when
there is so much that it pays: a step costs as much as what it brings and what it closes.
"""

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.streams.operators.changes import CLOSE, change_table, together
from headrace.streams.operators.grouping import Ints, one_chunk, runs_of
from headrace.streams.operators.keys import grouped
from headrace.streams.operators.layout import Layout
from headrace.streams.operators.state import OperatorState, numbers
from headrace.streams.operators.windows import Hopping, Tumbling

if TYPE_CHECKING:
    from headrace.streams.operators.operator import WindowOperator

__all__ = ["PaneState"]

_PANE = "_pane"


class PaneState(OperatorState):
    def __init__(self, operator: "WindowOperator") -> None:
        super().__init__(operator)
        assert isinstance(operator.window, Tumbling | Hopping)
        self._window = operator.window
        self._panes: dict[int, list[pa.Table]] = {}

    @property
    def row_count(self) -> int:
        return sum(run.num_rows for runs in self._panes.values() for run in runs)

    def _rows(self) -> pa.Table | None:
        runs = [run for pane in sorted(self._panes) for run in self._panes[pane]]
        return pa.concat_tables(runs) if runs else None

    def _deadlines(self, table: pa.Table) -> Ints:
        return numbers(table, _PANE) + self._window.pane_us

    def _windows(self, table: pa.Table) -> list[pa.Array]:
        panes = numbers(table, _PANE)
        return [pa.array(panes), pa.array(panes + self._window.pane_us)]

    def _step(self, table: pa.Table | None, watermark_us: int, *, quiet: bool) -> pa.Table | None:
        changes = []
        if table is not None:
            self._add(table)
        if not quiet:
            for pane in sorted(self._panes):
                if self.watermark_us < pane + self._window.pane_us <= watermark_us:
                    changes.append(self._close(pane))
        for pane in [each for each in self._panes if self._gone(each, watermark_us)]:
            del self._panes[pane]
        return together(changes)

    def _gone(self, pane: int, watermark_us: int) -> bool:
        return pane + self._window.size_us + self.operator.keep_us <= watermark_us

    def _add(self, table: pa.Table) -> None:
        panes = numbers(table, _PANE)
        starts = runs_of(panes).tolist()
        for begin, end in zip(starts, [*starts[1:], table.num_rows], strict=True):
            self._panes.setdefault(int(panes[begin]), []).append(table.slice(begin, end - begin))

    def _close(self, pane: int) -> pa.Table:
        merged = merge_runs(self.layout, self._panes[pane])
        self._panes[pane] = [merged]
        starts = numbers(merged, _PANE)
        windows = starts, starts + self._window.size_us
        return change_table(self.layout, merged, windows, CLOSE, None, self.layout.finished(merged))


def merge_runs(layout: Layout, runs: list[pa.Table]) -> pa.Table:
    """One row per key of what the runs hold, ordered by hash."""
    table = pa.concat_tables(runs).combine_chunks()
    order, groups = grouped(table, layout.keys)
    if len(runs) > 1:
        table = table.take(pa.array(order))
    places = [one_chunk(table[name]).take(pa.array(groups.representatives)) for name in layout.places]
    return layout.merged(table, groups, places)
