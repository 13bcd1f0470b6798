"""Joins of a stream with a table as it is: each row of the stream with the table's row for its key, at once.

A row is joined when it comes, with what the table holds then; what the table becomes later does not
change it. So what a row gets depends on which input was read first. Of rows that come in one step
the table's are taken first.

The table's rows come and go, whatever made them. (The versions of a topic's own rows can be looked
up without holding the table beside them: see `AsOfJoin`, mode "latest".)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.operators.joins.by_key import JoinByKey
from headrace.streams.operators.joins.columns import ROW, Columns, Piece, keyed
from headrace.streams.operators.joins.side import Side
from headrace.streams.operators.joins.stream_join import built_with_stamps
from headrace.streams.operators.joins.values import any_null, columns_of
from headrace.streams.operators.keys import HASH, hashes_of
from headrace.streams.operators.operator import STAMPS, OperatorStep, decode_state, encode_state
from headrace.streams.operators.runs import Held

__all__ = ["LatestJoin"]

HOW = ("inner", "left")
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestJoin(JoinByKey):
    """A stream, the left input, with the rows of a table; a null in a key matches nothing.

    What comes out has the stream's stamps, in no particular order within a step.
    """

    how: Literal["inner", "left"] = "inner"

    def __post_init__(self) -> None:
        if self.how not in HOW:
            raise RequestError(f"a stream and a table join {', '.join(HOW)}; {self.how!r} is none of these")

    def _state(self, columns: Columns) -> "LatestJoinState":
        return LatestJoinState(self, columns)

    def describe(self) -> dict[str, Any]:
        return self._described("latest join", _VERSION)


class LatestJoinState:
    """The table's rows of one bucket of keys. A delta is what changed of them, a snapshot all of them."""

    def __init__(self, operator: LatestJoin, columns: Columns) -> None:
        self.operator = operator
        self._columns = columns
        self._names = [*(each.name for each in columns.fields[0]), *STAMPS[:-1]]
        self._table = Side(columns, 1, rows=True, counts=False)

    @property
    def row_count(self) -> int:
        return self._table.row_count

    def held(self) -> tuple[Held, ...]:
        return Held(0), Held(self.row_count)

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:  # noqa: ARG002
        changed = self._table.with_keys(self._table.prepared(arrived[1]))
        self._table.add(changed, None)
        events = arrived[0]
        pieces = [] if events is None or not events.num_rows else self._joined(events)
        return OperatorStep(changes=built_with_stamps(self._columns, pieces), delta=_stored(changed))

    def snapshot(self) -> bytes:
        assert self._table.rows is not None
        return _stored(self._table.rows.merged())

    def replay(self, stored: bytes) -> None:
        parts, _ = decode_state(stored)
        if "right" in parts:
            self._table.add(self._table.prepared(parts["right"]), None)

    def _joined(self, arrived: pa.Table) -> list[Piece]:
        """Rows of the stream, each with what the table has for it, or with nulls."""
        events = keyed(arrived.select(self._names), self.operator.left_on, None)
        events = events.take(pa.array(np.argsort(hashes_of(events), kind="stable")))
        nulls = any_null(columns_of(events, self.operator.left_on), events.num_rows)
        places = np.arange(events.num_rows) if nulls is None else np.flatnonzero(~nulls)
        alone, pieces = np.ones(events.num_rows, np.bool_), []
        asking = events.take(pa.array(places))
        for held, matched, rows in self._table.now(asking, self.operator.left_on):
            ones = np.ones(len(rows), np.int64)
            pieces.append(Piece(events, places[matched], held, rows, ones))
            alone[places[matched]] = False
        if self.operator.how == "left":
            rows = np.flatnonzero(alone)
            pieces.append(Piece(events, rows, None, None, np.ones(len(rows), np.int64)))
        return pieces


def _stored(rows: pa.Table | None) -> bytes:
    return encode_state({"right": None if rows is None else rows.drop_columns([HASH, ROW])}, {})
