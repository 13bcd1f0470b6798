"""State of session windows: fragments of sessions, joined when somebody looks.

A fragment is a stretch of a key's events at most the gap apart: what a batch brought, or
what a merge of runs made of several. The sessions of a key are the connected stretches
of its fragments, whatever the order in which those came. Which sessions are visible is a
function of the watermark alone: with "close" those whose end it has passed, else all.
A step looks at the keys that it brings and at those whose session may close.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.streams.operators.changes import (
    CLOSE,
    CORRECTION,
    RETRACTION,
    UPDATE,
    change_table,
    instants,
    together,
)
from headrace.streams.operators.grouping import Groups, Ints
from headrace.streams.operators.hashing import distinct
from headrace.streams.operators.keys import grouped, hashes_of
from headrace.streams.operators.partials import by_two
from headrace.streams.operators.runs import Runs, in_one_chunk
from headrace.streams.operators.state import NO_WATERMARK, OperatorState, numbers
from headrace.streams.operators.timers import Timers
from headrace.streams.operators.windows import Session

if TYPE_CHECKING:
    from headrace.streams.operators.operator import WindowOperator

__all__ = ["SessionState"]

_FIRST, _LAST = "_first", "_last"


@dataclass(frozen=True)
class _Sessions:
    """Sessions of some keys, ordered by key and time; `of` is the session of each fragment."""

    table: pa.Table
    of: Ints

    @property
    def first(self) -> Ints:
        return numbers(self.table, _FIRST)

    @property
    def last(self) -> Ints:
        return numbers(self.table, _LAST)


class SessionState(OperatorState):
    def __init__(self, operator: "WindowOperator") -> None:
        super().__init__(operator)
        assert isinstance(operator.window, Session)
        self._gap_us = operator.window.gap_us
        self._fragments = Runs(self._merge)
        self._timers = Timers(max(self._gap_us // 16, 1_000_000))
        self._swept_us = NO_WATERMARK

    @property
    def row_count(self) -> int:
        return self._fragments.row_count

    def _tables(self) -> Sequence[pa.Table]:
        return self._fragments.tables

    def _deadlines(self, table: pa.Table) -> Ints:
        return numbers(table, _FIRST) + 1

    def _windows(self, table: pa.Table) -> list[pa.Array]:
        return [instants(numbers(table, _FIRST)), instants(numbers(table, _LAST) + self._gap_us)]

    def _closes(self, last: Ints) -> Ints:
        """The watermark at which a session is published: no event can join it then."""
        return last + self._gap_us + 1

    def _add(self, tables: Sequence[pa.Table]) -> None:
        for table in tables:
            self._fragments.add(table)
            if self.operator.emit == "close":
                closes = self._closes(numbers(table, _LAST))
                later = closes > self.watermark_us
                self._timers.add(closes[later], hashes_of(table)[later])

    def _forget(self) -> None:
        """Sweeps once per lifetime of a closed session, so that a sweep costs what came in since."""
        lifetime_us = self._gap_us + self.operator.keep_us
        if self._swept_us == NO_WATERMARK:
            self._swept_us = self.watermark_us
        if self.watermark_us - self._swept_us < lifetime_us:
            return
        self._swept_us = self.watermark_us
        table = self._fragments.merged()
        if table is not None:
            kept = self._closes(numbers(table, _LAST)) + self.operator.keep_us > self.watermark_us
            if not kept.all():
                self._fragments.replace(table.filter(pa.array(kept)))

    def _changed(self, tables: Sequence[pa.Table], watermark_us: int) -> pa.Table | None:
        arrived = in_one_chunk(tables) if tables else None
        hashes = self._timers.due(watermark_us)
        if arrived is not None:
            hashes = np.concatenate([hashes, hashes_of(arrived)])
        if not len(hashes):
            return None
        hashes = distinct(hashes)
        held = self._fragments.find(hashes)
        changes = self._compared(held, arrived, watermark_us)
        self._add(tables)
        return together(changes)

    def _compared(self, held: pa.Table | None, arrived: pa.Table | None, watermark_us: int) -> list[pa.Table]:
        """The changes of the keys of these fragments, from what was visible to what now is."""
        parts = [table for table in (held, arrived) if table is not None]
        if not parts:
            return []
        table = in_one_chunk(parts)
        is_old = np.arange(table.num_rows) < (0 if held is None else held.num_rows)
        order, keys = self._ordered(table)
        table, is_old = table.take(pa.array(order)), is_old[order]
        new = self._joined(table, keys)
        old_rows = np.flatnonzero(is_old)
        old = self._joined(table.take(pa.array(old_rows)), keys[old_rows])
        return self._differences(old, new, _container(old, new, old_rows), is_old, watermark_us)

    def _differences(
        self,
        old: _Sessions,
        new: _Sessions,
        container: Ints,
        is_old: npt.NDArray[np.bool_],
        watermark_us: int,
    ) -> list[pa.Table]:
        fresh = np.zeros(new.table.num_rows, np.bool_)
        fresh[new.of[~is_old]] = True
        was = self._visible(old.last, self.watermark_us)
        now = self._visible(new.last, watermark_us)
        stays = (old.first == new.first[container]) & (old.last == new.last[container])
        predecessor = np.full(new.table.num_rows, -1)
        kept = np.flatnonzero(was & stays)
        predecessor[container[kept]] = kept
        withdrawn = np.flatnonzero(was & ~stays)
        changed = np.flatnonzero(now & ((predecessor < 0) | fresh))
        return [
            self._retractions(old, withdrawn),
            self._publications(old, new, changed, predecessor[changed]),
        ]

    def _visible(self, last: Ints, watermark_us: int) -> npt.NDArray[np.bool_]:
        if self.operator.emit == "update":
            return np.ones(len(last), np.bool_)
        return np.asarray(self._closes(last) <= watermark_us)

    def _retractions(self, old: _Sessions, rows: Ints) -> pa.Table:
        table = old.table.take(pa.array(rows))
        return change_table(
            self.layout, table, self._bounds(table), RETRACTION, self.layout.finished(table), None
        )

    def _publications(self, old: _Sessions, new: _Sessions, rows: Ints, predecessor: Ints) -> pa.Table:
        table = new.table.take(pa.array(rows))
        early = UPDATE if self.operator.emit == "update" else CLOSE
        kinds = np.where(self._closes(numbers(table, _LAST)) <= self.watermark_us, CORRECTION, early)
        replaced = np.flatnonzero(predecessor >= 0)
        before = self.layout.finished(old.table.take(pa.array(predecessor[replaced])))
        places = np.full(len(rows), -1)
        places[replaced] = np.arange(len(replaced))
        before = before.take(pa.array(places, mask=places < 0))
        return change_table(
            self.layout, table, self._bounds(table), kinds, before, self.layout.finished(table)
        )

    def _bounds(self, table: pa.Table) -> tuple[Ints, Ints]:
        return numbers(table, _FIRST), numbers(table, _LAST) + self._gap_us

    def _ordered(self, table: pa.Table) -> tuple[Ints, Ints]:
        """An order by key and first event; and the number of each row's key, in that order."""
        order, groups = grouped(table, self.layout.keys)
        inner = by_two(groups.ids, numbers(table, _FIRST)[order])
        return order[inner], groups.ids

    def _joined(self, table: pa.Table, keys: Ints) -> _Sessions:
        """Joins fragments, ordered by key and first event, that touch or overlap."""
        first, last = numbers(table, _FIRST), numbers(table, _LAST)
        reach = _running_maximum(keys, last)
        new = np.ones(len(keys), np.bool_)
        new[1:] = (keys[1:] != keys[:-1]) | (first[1:] - reach[:-1] > self._gap_us)
        groups = Groups.adjacent(np.flatnonzero(new), len(keys))
        places = [pa.array(first[groups.representatives]), pa.array(groups.maximum(last, 0))]
        return _Sessions(self.layout.merged(table, groups, places), groups.ids)

    def _merge(self, table: pa.Table) -> pa.Table:
        order, keys = self._ordered(table)
        return self._joined(table.take(pa.array(order)), keys).table


def _running_maximum(keys: Ints, values: Ints) -> Ints:
    """The greatest value so far within each key; rows are ordered by key."""
    if not len(keys):
        return values
    least = int(values.min())
    span = int(values.max()) - least + 1
    if int(keys[-1]) * span < 1 << 62:
        return np.asarray(np.maximum.accumulate(keys * span + (values - least)) - keys * span + least)
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    best = np.maximum.accumulate(keys * len(keys) + ranks) - keys * len(keys)
    return np.asarray(np.sort(values, kind="stable")[best])


def _container(old: _Sessions, new: _Sessions, old_rows: Ints) -> Ints:
    """The session after the step that each session before it is part of."""
    container = np.empty(old.table.num_rows, np.int64)
    container[old.of] = new.of[old_rows]
    return container
