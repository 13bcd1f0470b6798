"""Joins of two streams: rows with equal keys whose times are close enough.

A left row at t and a right row at u are a pair if t - before_us <= u <= t + after_us. A pair
comes out when the second of the two arrives. A row of a preserved side that has found no
partner comes out, with nulls, once the other input's watermark is past the last time that a
partner could have: then every partner that is not late is here.

Lateness is judged by a row's own stamps, and so by the log alone. A late row takes no part
("drop"), or takes part as long as it is at most `correct_for_us` late ("correct"): rows are
kept as much longer, and one that had come out without a partner is withdrawn when it gets one.
A row at t is forgotten once the other input's watermark is past t + after_us + correct_for_us
(of the right, before_us), which a row that is yet to come and counts cannot reach back to: the
input's watermark is never ahead of that of a partition that it waits for. Only rows of a
partition that was not waited for, because it was idle, may find their partners forgotten. Such
a row is joined with what is held, and counted as "incomplete"; if nothing can be held any more
of all that it might match, it is dropped, since its "state [is] gone".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.hashing import distinct
from headrace.streams.operators.joins.by_key import JoinByKey
from headrace.streams.operators.joins.columns import Columns, Piece, keyed
from headrace.streams.operators.joins.lateness import Counters, late, without
from headrace.streams.operators.joins.timed import (
    EARLIEST_US,
    MARK,
    TimedRun,
    TimedRuns,
    by_hash_and_time,
    clipped,
)
from headrace.streams.operators.joins.values import any_null, columns_of
from headrace.streams.operators.keys import HASH
from headrace.streams.operators.operator import (
    STAMPS,
    WEIGHT,
    OperatorStep,
    decode_state,
    encode_state,
    numbers,
    stamp_fields,
)
from headrace.streams.operators.runs import Held

__all__ = ["StreamJoin", "StreamJoinState", "built_with_stamps", "check_lateness"]

HOW = ("inner", "left", "right", "full")
LATE = ("drop", "correct")
_VERSION = 1
_LONGEST_US = 1 << 61


def check_lateness(late: str, correct_for_us: int) -> None:
    """Refuses what contradicts itself."""
    if late not in LATE:
        raise RequestError(f"late rows are dealt with by {' or '.join(LATE)}, not {late!r}")
    if late == "drop" and correct_for_us:
        raise RequestError('correct_for_us is for late="correct"; leave it out, or say so')
    if not 0 <= correct_for_us <= _LONGEST_US:
        raise RequestError(f"correct_for_us is a number of microseconds, not {correct_for_us}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJoin(JoinByKey):
    """Two streams by equal keys within a time; a null in a key matches nothing.

    A joined row has the left row's stamps; a right row without partner has its own. What comes
    out of a step is in no particular order.
    """

    before_us: int = 0
    after_us: int = 0
    how: Literal["inner", "left", "right", "full"] = "inner"
    late: Literal["drop", "correct"] = "drop"
    correct_for_us: int = 0

    def __post_init__(self) -> None:
        if self.how not in HOW:
            raise RequestError(f"streams join {', '.join(HOW)}; {self.how!r} is none of these")
        check_lateness(self.late, self.correct_for_us)
        if self.before_us + self.after_us < 0 or max(abs(self.before_us), abs(self.after_us)) > _LONGEST_US:
            raise RequestError(
                f"no time is within {self.before_us} µs before and {self.after_us} µs after; give at "
                "least one of them, and a sum that is not negative"
            )

    @property
    def delay_us(self) -> int:
        """A pair has the time of its left row, which waits for after_us; a right row waits for before_us."""
        waits = [0, self.after_us, self.before_us if self.how in ("right", "full") else 0]
        return max(waits) + self.correct_for_us

    def dropped(self, number: int, rows: pa.Table) -> npt.NDArray[np.bool_] | None:  # noqa: ARG002
        return late(rows, self.correct_for_us)

    def _state(self, columns: Columns) -> "StreamJoinState":
        return StreamJoinState(self, columns)

    def describe(self) -> dict[str, Any]:
        return self._described(
            "stream join",
            _VERSION,
            before_us=self.before_us,
            after_us=self.after_us,
            late=self.late,
            correct_for_us=self.correct_for_us,
        )


class StreamJoinState:
    """The rows of both streams that may still be matched, or have to come out alone.

    A delta is what arrived and the watermarks, which are taken in again in the same way; a
    snapshot is what is held, marked where it has had a partner.
    """

    def __init__(self, operator: StreamJoin, columns: Columns) -> None:
        self.operator = operator
        self._columns = columns
        self._preserved = (operator.how in ("left", "full"), operator.how in ("right", "full"))
        self._names = [[*(each.name for each in fields), *STAMPS[:-1]] for fields in columns.fields]
        self._held = (TimedRuns(operator.left_on), TimedRuns(operator.right_on))
        self._watermarks = [EARLIEST_US, EARLIEST_US]
        # How long a row waits for partners, and how far back they may be.
        self._waits = (operator.after_us, operator.before_us)
        self._reaches = (operator.before_us, operator.after_us)

    @property
    def row_count(self) -> int:
        return sum(held.row_count for held in self._held)

    def held(self) -> tuple[Held, ...]:
        return tuple(each.held() for each in self._held)

    @property
    def touched(self) -> int:
        """Rows looked at since this state was made: a measure of cost that no other load disturbs."""
        return sum(held.touched for held in self._held)

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:
        counters = Counters()
        rows = [self._admitted(number, arrived[number], counters) for number in (0, 1)]
        pieces = self._take(rows, watermarks)
        return OperatorStep(
            changes=self._built(pieces),
            delta=self._delta(rows),
            counts=counters.counts,
            aside=counters.aside,
        )

    def snapshot(self) -> bytes:
        parts = {"left held": self._held[0].stored(), "right held": self._held[1].stored()}
        return encode_state(parts, self._about())

    def replay(self, stored: bytes) -> None:
        parts, about = decode_state(stored)
        watermarks = [about["left watermark"], about["right watermark"]]
        held = [parts.get("left held"), parts.get("right held")]
        if any(table is not None for table in held):
            for number, table in enumerate(held):
                if table is not None:
                    self._restore(number, table, clipped(watermarks[1 - number] - self._waits[number]))
        rows = [
            self._keyed(number, parts[name]) if name in parts else None
            for number, name in enumerate(("left", "right"))
        ]
        self._take(rows, watermarks)

    def _restore(self, number: int, table: pa.Table, settled_us: int) -> None:
        keys = self._held[number].keys
        marks = table[MARK]
        table = keyed(table.drop_columns(MARK), keys, None).append_column(MARK, marks)
        self._held[number].restore(table, settled_us)

    def _about(self) -> dict[str, int]:
        return {"left watermark": self._watermarks[0], "right watermark": self._watermarks[1]}

    def _delta(self, rows: Sequence[pa.Table | None]) -> bytes:
        """What is needed of the rows: where nothing is marked, those that are still held."""
        kept = []
        for number, table in enumerate(rows):
            if table is not None and not any(self._preserved):
                table = without(table, numbers(table, "_event_time") < self._held[number].horizon_us)
            kept.append(None if table is None else table.drop_columns(HASH))
        return encode_state({"left": kept[0], "right": kept[1]}, self._about())

    def _admitted(self, number: int, arrived: pa.Table | None, counters: Counters) -> pa.Table | None:
        """The rows that take part, in the order of a run; the others are dropped."""
        if arrived is None or not arrived.num_rows:
            return None
        too_late = late(arrived, self.operator.correct_for_us)
        counters.drop(number, arrived, too_late, "late")
        rows = without(arrived, too_late)
        # The times that the other side's partners of a row may have, and what of these is forgotten.
        times, horizon_us = numbers(rows, "_event_time"), self._held[1 - number].horizon_us
        if horizon_us > EARLIEST_US and len(times):
            gone = times + self._waits[number] < horizon_us
            counters.count(
                number, "incomplete", int((~gone & (times - self._reaches[number] < horizon_us)).sum())
            )
            counters.drop(number, rows, gone, "state gone", by_clock=True)
            rows = without(rows, gone)
        counters.count(number, "corrected", int(late(rows, 0).sum()))
        return self._keyed(number, rows) if rows.num_rows else None

    def _keyed(self, number: int, rows: pa.Table) -> pa.Table:
        return by_hash_and_time(keyed(rows.select(self._names[number]), self._held[number].keys, None))

    def _take(self, rows: Sequence[pa.Table | None], watermarks: Sequence[int]) -> list[Piece]:
        """Takes in rows, moves the watermarks; what comes out."""
        pieces: list[Piece] = []
        for number in (0, 1):
            table = rows[number]
            if table is not None:
                pieces += self._arrive(number, table)
        self._watermarks = [max(*each) for each in zip(self._watermarks, watermarks, strict=True)]
        for number in (0, 1):
            passed_us = self._watermarks[1 - number] - self._waits[number]
            if self._preserved[number]:
                for run, settled in self._held[number].settle(clipped(passed_us)):
                    alone = settled[~run.marked[settled]]
                    pieces.append(self._alone(number, run, alone, 1))
            self._held[number].forget(clipped(passed_us - self.operator.correct_for_us))
        return pieces

    def _arrive(self, number: int, table: pa.Table) -> list[Piece]:
        """Joins rows with what the other side holds, and holds them."""
        ours, theirs = self._held[number], self._held[1 - number]
        ours.touched += table.num_rows
        nulls = any_null(columns_of(table, ours.keys), table.num_rows)
        if nulls is not None and not self._preserved[number]:
            table, nulls = table.filter(pa.array(~nulls)), None
        run = ours.add(table)
        probe, places = table, None
        if nulls is not None:
            places = np.flatnonzero(~nulls)
            probe = table.take(pa.array(places))
        times = numbers(probe, "_event_time")
        found = theirs.find(probe, ours.keys, times - self._reaches[number], times + self._waits[number])
        pieces = []
        for held, matched, rows in found:
            matched = matched if places is None else places[matched]
            pieces += self._matched(number, (run, matched), (held, rows))
        return pieces

    def _matched(
        self, number: int, ours: tuple[TimedRun, Ints], theirs: tuple[TimedRun, Ints]
    ) -> list[Piece]:
        """Pairs of rows; what had come out without a partner is withdrawn. Marks both."""
        pieces = []
        if self._preserved[1 - number]:
            run, rows = theirs
            first = rows[~run.marked[rows]]
            withdrawn = distinct(first[run.times[first] < run.settled_us].view(np.uint64)).view(np.int64)
            pieces.append(self._alone(1 - number, run, withdrawn, -1))
            run.marked[rows] = True
        if self._preserved[number]:
            ours[0].marked[ours[1]] = True
        left, right = (ours, theirs) if number == 0 else (theirs, ours)
        weights = np.ones(len(left[1]), np.int64)
        return [*pieces, Piece(left[0].table, left[1], right[0].table, right[1], weights)]

    def _alone(self, number: int, run: TimedRun, rows: Ints, weight: int) -> Piece:
        weights = np.full(len(rows), weight, np.int64)
        if number == 0:
            return Piece(run.table, rows, None, None, weights)
        return Piece(None, None, run.table, rows, weights)

    def _built(self, pieces: Sequence[Piece]) -> pa.Table | None:
        return built_with_stamps(self._columns, pieces)


def built_with_stamps(columns: Columns, pieces: Sequence[Piece]) -> pa.Table | None:
    """The rows of pieces, each with the stamps of its left row, or of the right one where there is none."""
    pieces = [piece for piece in pieces if len(piece.weights)]
    if not pieces:
        return None
    schema = pa.schema([*columns.schema, *stamp_fields()])
    tables = []
    for piece in pieces:
        table, rows = (
            (piece.left, piece.left_rows) if piece.left is not None else (piece.right, piece.right_rows)
        )
        assert table is not None
        stamps = [one_chunk(table[name]) for name in STAMPS if name != WEIGHT]
        if rows is not None:
            places = pa.array(rows)
            stamps = [stamp.take(places) for stamp in stamps]
        arrays = [*columns.build(piece), *stamps, pa.array(piece.weights)]
        tables.append(pa.table(arrays, schema=schema))
    return pa.concat_tables(tables)
