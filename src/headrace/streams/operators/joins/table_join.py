"""Joins of two tables: changes of either in, changes of the join out.

With A and B what is there and dA, dB what changes, the pairs change by

    dA x B + (A + dA) x dB

weights multiplied. What depends on whether a key has partners at all (the rows of an outer
join that have none, semi and anti joins) changes in two ways: a row comes or goes, which
costs one look at how many partners its key has; or a key's number of partners becomes zero
or ceases to be, and then every row with that key is affected. That number is kept by key,
so that a change among a million partners does not look at the others.

A null in a key matches nothing: such a row is there in the result of an outer or anti join
as long as it is there at all, and no state is kept for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.operators.grouping import Ints
from headrace.streams.operators.joins.by_key import JoinByKey
from headrace.streams.operators.joins.columns import ROW, Columns, Piece
from headrace.streams.operators.joins.side import Side
from headrace.streams.operators.joins.values import any_null, columns_of, summed
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

__all__ = ["TableJoin", "TableJoinState"]

HOW = ("inner", "left", "right", "full", "semi", "anti")
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoin(JoinByKey):
    """Two tables by equal keys, as SQL joins them; many rows of either side may have one key.

    What comes out is consolidated: every row once with the sum of its weights, none of weight
    zero, in an order that depends on the rows alone.
    """

    how: Literal["inner", "left", "right", "full", "semi", "anti"] = "inner"

    def __post_init__(self) -> None:
        if self.how not in HOW:
            raise RequestError(f"tables join {', '.join(HOW)}; {self.how!r} is none of these")

    def _state(self, columns: Columns) -> "TableJoinState":
        return TableJoinState(self, columns)

    def describe(self) -> dict[str, Any]:
        return self._described("table join", _VERSION)

    def _columns(self, schemas: Sequence[pa.Schema]) -> Columns:
        return Columns.of(
            schemas,
            (self.left_on, self.right_on),
            (self.left_names, self.right_names),
            only_left=self.how in ("semi", "anti"),
        )


class TableJoinState:
    """Both tables, or of one that only decides about the other's rows the number of rows by key.

    A delta is what arrived, without nulls in keys and summed; a snapshot is all that arrived.
    """

    def __init__(self, operator: TableJoin, columns: Columns) -> None:
        how = operator.how
        self.operator = operator
        self._columns = columns
        self._pairs = how not in ("semi", "anti")
        self._preserved = (how in ("left", "full", "anti"), how in ("right", "full"))
        self._sides = (
            Side(columns, 0, rows=True, counts=self._preserved[1]),
            Side(columns, 1, rows=self._pairs, counts=self._preserved[0] or how == "semi"),
        )

    @property
    def row_count(self) -> int:
        return sum(side.row_count for side in self._sides)

    def held(self) -> tuple[Held, ...]:
        return tuple(Held(each.row_count) for each in self._sides)

    @property
    def touched(self) -> int:
        """Rows looked at since this state was made: a measure of cost that no other load disturbs."""
        return sum(side.touched for side in self._sides)

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:  # noqa: ARG002
        """Takes in changes of both tables; watermarks mean nothing here."""
        pieces: list[Piece] = []
        kept = [self._with_keys(number, arrived[number], pieces) for number in (0, 1)]
        counts = [side.counts_of(table) for side, table in zip(self._sides, kept, strict=True)]
        pieces += self._changed(kept, counts)
        parts = {"left": self._stored(0, kept[0], counts[0]), "right": self._stored(1, kept[1], counts[1])}
        return OperatorStep(changes=self._consolidated(pieces), delta=encode_state(parts, {}))

    def snapshot(self) -> bytes:
        held = []
        for side in self._sides:
            rows = side.rows.merged() if side.rows is not None else None
            held.append((rows, side.counts.merged() if side.counts is not None else None))
        return encode_state({"left": self._stored(0, *held[0]), "right": self._stored(1, *held[1])}, {})

    def replay(self, stored: bytes) -> None:
        parts, _ = decode_state(stored)
        for side, name in zip(self._sides, ("left", "right"), strict=True):
            table = side.prepared(parts.get(name))
            side.add(table, side.counts_of(table))

    def _stored(self, number: int, table: pa.Table | None, counts: pa.Table | None) -> pa.Table | None:
        held = table if self._sides[number].rows is not None else counts
        if held is None:
            return None
        return held.drop_columns([name for name in (HASH, ROW) if name in held.column_names])

    def _with_keys(self, number: int, arrived: pa.Table | None, pieces: list[Piece]) -> pa.Table | None:
        """What arrived and may have partners; rows with a null in their key go straight to the result."""
        side = self._sides[number]
        table = side.prepared(arrived)
        nulls = any_null(columns_of(table, side.keys), table.num_rows) if table is not None else None
        if table is None or nulls is None:
            return table
        if self._preserved[number]:
            rows = np.flatnonzero(nulls)
            pieces.append(self._alone(number, table, rows, numbers(table, WEIGHT)[rows]))
        return table.filter(pa.array(~nulls))

    def _changed(self, kept: Sequence[pa.Table | None], counts: Sequence[pa.Table | None]) -> list[Piece]:
        """Takes in what is kept; what that changes in the result."""
        pieces: list[Piece] = []
        had = [self._had(number, counts[1 - number]) for number in (0, 1)]
        for number in (0, 1):
            pieces += self._arrived_alone(number, kept[number])
        if self._pairs:
            pieces += self._paired(0, kept[0])
        self._sides[0].add(kept[0], counts[0])
        if self._pairs:
            pieces += self._paired(1, kept[1])
        self._sides[1].add(kept[1], counts[1])
        for number in (0, 1):
            pieces += self._turned(number, counts[1 - number], had[number])
        return pieces

    def _decides(self, number: int) -> bool:
        """Whether rows of this side are in the result by whether their key has partners."""
        return self._preserved[number] or (number == 0 and self.operator.how == "semi")

    def _had(self, number: int, counts: pa.Table | None) -> Ints | None:
        """For keys whose number of partners changes for this side's rows: the number before."""
        if counts is None or not self._decides(number):
            return None
        other = self._sides[1 - number]
        return other.partners(counts, other.keys)

    def _arrived_alone(self, number: int, table: pa.Table | None) -> list[Piece]:
        """Rows that arrived, where their keys' partners before are such that they are in the result."""
        if table is None or not self._decides(number):
            return []
        partners = self._sides[1 - number].partners(table, self._sides[number].keys) > 0
        rows = np.flatnonzero(partners if self.operator.how == "semi" else ~partners)
        return [self._alone(number, table, rows, numbers(table, WEIGHT)[rows])]

    def _turned(self, number: int, counts: pa.Table | None, had: Ints | None) -> list[Piece]:
        """All rows whose key has come to have partners, or no longer has any."""
        if counts is None or had is None:
            return []
        has = had + numbers(counts, WEIGHT) > 0
        turned = np.flatnonzero(has != (had > 0))
        if not len(turned):
            return []
        signs = np.where(has[turned] == (self.operator.how == "semi"), 1, -1)
        side, keys = self._sides[number], self._sides[1 - number].keys
        pieces = []
        assert side.rows is not None
        for table, places, rows in side.pairs(side.rows, counts.take(pa.array(turned)), keys):
            weights = numbers(table, WEIGHT)[rows] * signs[places]
            pieces.append(self._alone(number, table, rows, weights))
        return pieces

    def _paired(self, number: int, table: pa.Table | None) -> list[Piece]:
        """Rows of this side that arrived with all that the other side has."""
        other = self._sides[1 - number]
        if table is None or other.rows is None:
            return []
        pieces = []
        for held, places, rows in other.pairs(other.rows, table, self._sides[number].keys):
            weights = numbers(table, WEIGHT)[places] * numbers(held, WEIGHT)[rows]
            if number == 0:
                pieces.append(Piece(table, places, held, rows, weights))
            else:
                pieces.append(Piece(held, rows, table, places, weights))
        return pieces

    def _alone(self, number: int, table: pa.Table, rows: Ints, weights: Ints) -> Piece:
        return (
            Piece(table, rows, None, None, weights)
            if number == 0
            else Piece(None, None, table, rows, weights)
        )

    def _consolidated(self, pieces: Sequence[Piece]) -> pa.Table | None:
        pieces = [piece for piece in pieces if len(piece.weights)]
        if not pieces:
            return None
        hashes = np.concatenate([self._columns.hashes(piece) for piece in pieces])
        built = [self._columns.build(piece) for piece in pieces]
        columns = [pa.concat_arrays(each) for each in zip(*built, strict=True)]
        order, weights, _ = summed([hashes], columns, np.concatenate([piece.weights for piece in pieces]))
        if not len(order):
            return None
        places = pa.array(order)
        stamps = [pa.nulls(len(order), each.type) for each in stamp_fields()[:-1]]
        arrays = [*(column.take(places) for column in columns), *stamps, pa.array(weights)]
        return pa.table(arrays, names=[*self._columns.schema.names, *STAMPS])
