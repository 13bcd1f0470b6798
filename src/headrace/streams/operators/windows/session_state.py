"""State of session windows: fragments of sessions, joined when somebody looks.

A fragment is a stretch of a key's events at most the gap apart: what a batch brought, or
what a merge of runs made of several. The sessions of a key are the connected stretches
of its fragments, whatever the order in which those came. Which sessions are visible is a
function of the watermark alone: with "close" those whose end it has passed, else all.
A step looks at the keys that it brings and at those whose session may close.
"""

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
)
from headrace.streams.operators.grouping import Groups, Ints
from headrace.streams.operators.keys import grouped
from headrace.streams.operators.windows.event_state import EventState
from headrace.streams.operators.windows.partials import by_two
from headrace.streams.operators.windows.state import numbers
from headrace.streams.operators.windows.windows import Session

if TYPE_CHECKING:
    from headrace.streams.operators.windows.operator import WindowOperator

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


class SessionState(EventState):
    def __init__(self, operator: "WindowOperator") -> None:
        assert isinstance(operator.window, Session)
        self._gap_us = operator.window.gap_us
        super().__init__(operator, self._gap_us)

    @property
    def _lifetime_us(self) -> int:
        return 2 * self._gap_us + self.operator.keep_us

    def _ends(self, table: pa.Table) -> tuple[Ints, Ints]:
        """Events that belong together share the fate of the earliest."""
        end = numbers(table, _FIRST) + self._gap_us + 1
        return end, end

    def _earliest(self, table: pa.Table) -> tuple[Ints, Ints]:
        return self._bounds(table)

    def _closes(self, last: Ints) -> Ints:
        """The watermark at which a session is published: none that is still expected can join it."""
        return last + self._gap_us + 1

    def _due(self, table: pa.Table) -> Ints:
        return self._closes(numbers(table, _LAST))

    def _gone(self, table: pa.Table) -> Ints:
        """For the gap behind its end an event can still be on time for itself, and join the session."""
        return self._due(table) + self._gap_us + self.operator.keep_us

    def _compared(
        self, table: pa.Table, keys: Ints, is_new: npt.NDArray[np.bool_], watermark_us: int
    ) -> list[pa.Table]:
        new = self._joined(table, keys)
        old_rows = np.flatnonzero(~is_new)
        old = self._joined(table.take(pa.array(old_rows)), keys[old_rows])
        return self._differences(old, new, _container(old, new, old_rows), is_new, watermark_us)

    def _differences(
        self,
        old: _Sessions,
        new: _Sessions,
        container: Ints,
        is_new: npt.NDArray[np.bool_],
        watermark_us: int,
    ) -> list[pa.Table]:
        fresh = np.zeros(new.table.num_rows, np.bool_)
        fresh[new.of[is_new]] = True
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
        return self._published(table, self._bounds(table), kinds, before)

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
