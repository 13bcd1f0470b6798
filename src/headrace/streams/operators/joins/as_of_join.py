"""Joins of a stream with a table: each event with the version of the table's row for its key.

Versions come by the second input: rows with stamps whose event time is that from which on they
are valid, and a column `_deleted`. Of the versions of a key that are valid at a time the one with
the greatest (valid from, partition, offset) counts; if it is a delete there is no match.

"as_of": the version valid at the event's own time. An event is held until the table's watermark
is past its time; then it comes out, once. A version that comes late, by its own stamps, counts

    for events at t with valid from <= t and its watermark <= t + correct_for_us

which is a matter of the log alone. "drop" is this without correct_for_us: the version is counted as
dropped and put aside, since events before its watermark go without it, and serves the events
behind. With "correct" events are kept for correct_for_us; those that had been given something
else are withdrawn and come out again. A version later than correct_for_us is treated as "drop"
does, for the events that it is too late for.

"latest": the newest version that has arrived, at once, and never corrected. What it gives
depends on which input was read first.

Versions are kept for `keep_us` behind the watermarks (at least for correct_for_us), and the one
that was valid then. Rows of either input that are later than that by their own stamps are
dropped ("state gone"), so that this, too, is a matter of the log. An event of a partition that
was idle may come later than versions are kept: it is joined if the version it should get is
certain to be the one still kept, and dropped otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.operators.grouping import Ints
from headrace.streams.operators.joins.by_key import JoinByKey
from headrace.streams.operators.joins.columns import Columns, Piece, keyed
from headrace.streams.operators.joins.lateness import Counters, late, without
from headrace.streams.operators.joins.stream_join import built_with_stamps, check_lateness
from headrace.streams.operators.joins.timed import (
    EARLIEST_US,
    LATEST_US,
    MARK,
    TimedRun,
    TimedRuns,
    by_hash_and_time,
    clipped,
)
from headrace.streams.operators.joins.values import Flags, any_null, columns_of, equal_rows
from headrace.streams.operators.joins.versions import VersionMatches, VersionRun, Versions
from headrace.streams.operators.keys import HASH, hashes_of
from headrace.streams.operators.operator import (
    DELETED,
    STAMPS,
    OperatorStep,
    decode_state,
    encode_state,
    numbers,
)
from headrace.streams.operators.runs import Held

__all__ = ["AsOfJoin", "AsOfJoinState"]

HOW = ("inner", "left")
MODES = ("as_of", "latest")
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOfJoin(JoinByKey):
    """A stream, the left input, with the versions of a table by its key; a null in a key matches nothing.

    What comes out has the stream's stamps, in no particular order within a step. `keep_us` is
    how late events and versions may be; None keeps every version for ever.
    """

    how: Literal["inner", "left"] = "inner"
    mode: Literal["as_of", "latest"] = "as_of"
    late: Literal["drop", "correct"] = "drop"
    correct_for_us: int = 0
    keep_us: int | None = None

    def __post_init__(self) -> None:
        if self.how not in HOW:
            raise RequestError(f"a stream and a table join {', '.join(HOW)}; {self.how!r} is none of these")
        if self.mode not in MODES:
            raise RequestError(f"the mode is one of {', '.join(MODES)}, not {self.mode!r}")
        check_lateness(self.late, self.correct_for_us)
        if self.mode == "latest" and self.late == "correct":
            raise RequestError('what mode="latest" gives is never corrected; leave out late="correct"')
        if self.keep_us is not None and self.keep_us < 0:
            raise RequestError(f"keep_us is a number of microseconds, not {self.keep_us}")

    @property
    def delay_us(self) -> int:
        return self.correct_for_us

    @property
    def kept_us(self) -> int | None:
        """How long versions are kept behind the watermarks."""
        return None if self.keep_us is None else max(self.keep_us, self.correct_for_us)

    def _state(self, columns: Columns) -> "AsOfJoinState":
        return AsOfJoinState(self, columns)

    def describe(self) -> dict[str, Any]:
        return self._described(
            "as-of join",
            _VERSION,
            mode=self.mode,
            late=self.late,
            correct_for_us=self.correct_for_us,
            keep_us=self.keep_us,
        )

    def _columns(self, schemas: Sequence[pa.Schema]) -> Columns:
        if DELETED not in schemas[1].names or schemas[1].field(DELETED).type != pa.bool_():
            raise RequestError(f"the versions of a table have a bool column {DELETED!r}; this input has none")
        names = (self.left_names, self.right_names)
        return Columns.of(schemas, (self.left_on, self.right_on), names, left_out=(DELETED,))


class AsOfJoinState:
    """The versions of one bucket of keys, the events that wait, and those that may be corrected.

    A delta is the versions that were taken, the events that are held, and the watermarks.
    """

    def __init__(self, operator: AsOfJoin, columns: Columns) -> None:
        self.operator = operator
        self._columns = columns
        self._waits = operator.mode == "as_of"
        self._names = [[*(each.name for each in fields), *STAMPS[:-1]] for fields in columns.fields]
        self._given = columns.beside[1]
        self._events = TimedRuns(operator.left_on)
        self._versions = Versions(
            operator.right_on, operator.correct_for_us if self._waits else 0, only_last=not self._waits
        )
        self._watermarks = [EARLIEST_US, EARLIEST_US]

    @property
    def row_count(self) -> int:
        return self._events.row_count + self._versions.row_count

    def held(self) -> tuple[Held, ...]:
        return self._events.held(), self._versions.held()

    @property
    def touched(self) -> int:
        """Rows looked at since this state was made: a measure of cost that no other load disturbs."""
        return self._events.touched + self._versions.touched

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:
        counters, pieces = Counters(), []
        versions = self._admitted_versions(arrived[1], counters)
        if versions is not None:
            pieces += self._corrected(versions)
        events = self._admitted_events(arrived[0], counters)
        if events is not None and not self._waits:
            everything = np.arange(events.num_rows)
            pieces += self._looked_up(events, everything)
        elif events is not None:
            self._events.touched += events.num_rows
            self._events.add(events)
        self._watermarks = [max(*each) for each in zip(self._watermarks, watermarks, strict=True)]
        for run, rows in self._events.settle(self._watermarks[1]):
            pieces += self._looked_up(run.table, np.sort(rows))
        changes = built_with_stamps(self._columns, pieces)
        self._forget()
        held = None
        if events is not None and self._waits:
            held = without(events, numbers(events, "_event_time") < self._events.horizon_us)
        parts = {"events": held, "versions": None if versions is None else versions.table}
        return OperatorStep(
            changes=changes, delta=self._encoded(parts), counts=counters.counts, aside=counters.aside
        )

    def snapshot(self) -> bytes:
        events = self._events.stored()
        parts = {
            "events": events.drop_columns(MARK) if events is not None else None,
            "versions": self._versions.merged(),
        }
        return self._encoded(parts)

    def replay(self, stored: bytes) -> None:
        parts, about = decode_state(stored)
        self._watermarks = [about["stream watermark"], about["table watermark"]]
        if "versions" in parts:
            self._versions.add(self._versions.run_of(self._keyed(1, parts["versions"])))
        if "events" in parts:
            self._events.add(by_hash_and_time(self._keyed(0, parts["events"])))
        self._events.settle(self._watermarks[1])
        self._forget()

    def _encoded(self, parts: dict[str, pa.Table | None]) -> bytes:
        plain = {
            name: table.drop_columns(HASH) if table is not None and HASH in table.column_names else table
            for name, table in parts.items()
        }
        about = {"stream watermark": self._watermarks[0], "table watermark": self._watermarks[1]}
        return encode_state(plain, about)

    def _keyed(self, number: int, rows: pa.Table) -> pa.Table:
        return keyed(rows.select(self._names[number]), self.operator.inputs[number], None)

    def _forget(self) -> None:
        self._events.forget(clipped(self._watermarks[1] - self.operator.correct_for_us))
        kept_us = self.operator.kept_us
        self._versions.forget(EARLIEST_US if kept_us is None else clipped(min(self._watermarks) - kept_us))

    def _admitted_versions(self, arrived: pa.Table | None, counters: Counters) -> VersionRun | None:
        """The versions that serve at least some events; those that do not, or not all, are put aside."""
        if arrived is None or not arrived.num_rows:
            return None
        rows = self._without_old(1, arrived, counters)
        times = numbers(rows, "_event_time")
        before = times < self._versions.horizon_us
        counters.drop(1, rows, before, "state gone", by_clock=True)
        rows, times = without(rows, before), times[~before]
        if self._waits:
            correct_for_us = self.operator.correct_for_us
            too_late = late(rows, correct_for_us)
            counters.drop(1, rows, too_late, "late")
            passed = ~too_late & (times < clipped(self._watermarks[1] - correct_for_us))
            counters.drop(1, rows, passed, "state gone", by_clock=True)
            counters.count(1, "corrected", int((late(rows, 0) & ~too_late & ~passed).sum()))
        table = self._keyed(1, rows)
        nulls = any_null(columns_of(table, self.operator.right_on), table.num_rows)
        return self._versions.run_of(table if nulls is None else table.filter(pa.array(~nulls)))

    def _without_old(self, number: int, rows: pa.Table, counters: Counters) -> pa.Table:
        """Rows but for those that are later, by their stamps, than versions are kept."""
        kept_us = self.operator.kept_us
        if kept_us is None:
            return rows
        old = late(rows, kept_us)
        counters.drop(number, rows, old, "state gone")
        return without(rows, old)

    def _admitted_events(self, arrived: pa.Table | None, counters: Counters) -> pa.Table | None:
        """The events that are joined, in the order of a run."""
        if arrived is None or not arrived.num_rows:
            return None
        rows = self._without_old(0, arrived, counters)
        if self._waits and self._versions.horizon_us > EARLIEST_US:
            gone = self._uncertain(rows)
            counters.drop(0, rows, gone, "state gone", by_clock=True)
            rows = without(rows, gone)
        if not rows.num_rows:
            return None
        table = self._keyed(0, rows)
        return by_hash_and_time(table) if self._waits else table.take(pa.array(np.argsort(hashes_of(table))))

    def _uncertain(self, rows: pa.Table) -> Flags:
        """Which events get a version that need not be the one valid then, as others are forgotten."""
        horizon_us, times = self._versions.horizon_us, numbers(rows, "_event_time")
        uncertain = times < horizon_us
        if uncertain.any():
            places = np.flatnonzero(uncertain)
            events = self._keyed(0, rows.take(pa.array(places)))
            keys = self.operator.left_on
            then = self._versions.look_up(events, keys, times[places])
            kept = self._versions.look_up(events, keys, np.full(len(places), horizon_us))
            uncertain[places[(then.runs >= 0) & then.same_as(kept)]] = False
        return uncertain

    def _corrected(self, run: VersionRun) -> list[Piece]:
        """Takes in versions; withdraws what events were given that now get something else."""
        affected = self._affected(run)
        before = [self._versions.look_up(*each) for each in self._asking(affected)]
        self._versions.add(run)
        after = [self._versions.look_up(*each) for each in self._asking(affected)]
        pieces = []
        for (events, rows), old, new in zip(affected, before, after, strict=True):
            changed = np.flatnonzero(~old.same_as(new))
            changed = changed[~self._alike(old, new, changed)]
            pieces += self._given_out(events.table, rows, old, changed, -1)
            pieces += self._given_out(events.table, rows, new, changed, 1)
        return pieces

    def _affected(self, run: VersionRun) -> list[tuple[TimedRun, Ints]]:
        """Events that were given out and see one of these versions."""
        given_us = self._watermarks[1]
        if not run.table.num_rows or given_us <= self._events.horizon_us:
            return []
        low = np.maximum(run.times, run.seen_from_us)
        high = np.full(len(low), given_us - 1)
        found = self._events.find(run.table, self.operator.right_on, low, high)
        return [(events, np.unique(rows)) for events, _, rows in found]

    def _asking(
        self, affected: Sequence[tuple[TimedRun, Ints]]
    ) -> list[tuple[pa.Table, Sequence[str], Ints]]:
        keys = self.operator.left_on
        return [
            (run.table.select([*keys, HASH]).take(pa.array(rows)), keys, run.times[rows])
            for run, rows in affected
        ]

    def _alike(self, old: VersionMatches, new: VersionMatches, places: Ints) -> Flags:
        """Where the other version says the same."""
        alike = np.zeros(len(places), np.bool_)
        both = np.flatnonzero((old.runs[places] >= 0) & (new.runs[places] >= 0))
        if len(both):
            tables = [self._versions_of(answer, places[both]) for answer in (old, new)]
            columns = [
                pa.concat_arrays(each)
                for each in zip(*(columns_of(table, self._given) for table in tables), strict=True)
            ]
            rows = np.arange(len(both))
            alike[both] = equal_rows(columns, rows, rows + len(both))
        return alike

    def _versions_of(self, answer: VersionMatches, places: Ints) -> pa.Table:
        """The versions that an answer has at these places, one by one."""
        tables, at = [], []
        for number, run in enumerate(self._versions.runs):
            own = np.flatnonzero(answer.runs[places] == number)
            tables.append(run.table.take(pa.array(answer.rows[places[own]])))
            at.append(own)
        return pa.concat_tables(tables).take(pa.array(np.argsort(np.concatenate(at))))

    def _looked_up(self, events: pa.Table, rows: Ints) -> list[Piece]:
        """Events come out with what they get."""
        keys = self.operator.left_on
        asking = events.select([*keys, HASH])
        if len(rows) < events.num_rows:
            asking = asking.take(pa.array(rows))
        at = numbers(events, "_event_time")[rows] if self._waits else np.full(len(rows), LATEST_US)
        answer = self._versions.look_up(asking, keys, at)
        return self._given_out(events, rows, answer, np.arange(len(rows)), 1)

    def _given_out(
        self, events: pa.Table, rows: Ints, answer: VersionMatches, places: Ints, weight: int
    ) -> list[Piece]:
        """Some of the events that asked, with what they get, or with nulls."""
        pieces, runs = [], answer.runs[places]
        for number, run in enumerate(self._versions.runs):
            own = places[runs == number]
            weights = np.full(len(own), weight, np.int64)
            pieces.append(Piece(events, rows[own], run.table, answer.rows[own], weights))
        if self.operator.how == "left":
            alone = places[runs < 0]
            pieces.append(Piece(events, rows[alone], None, None, np.full(len(alone), weight, np.int64)))
        return pieces
