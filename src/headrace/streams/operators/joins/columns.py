"""The columns of a join's result, and of which side's columns they are made.

The left's columns come first, then the right's. A pair of key columns that have one name is
one column of the result: the key of whichever side there is. Any other name that both sides
have is refused. Key columns come out in their normal form (-0.0 is 0.0).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.column_hash import Hashes, hash_columns
from headrace.errors import RequestError
from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.hashing import normal_type
from headrace.streams.operators.joins.values import columns_of, hash_values, mixed
from headrace.streams.operators.keys import HASH, key_columns
from headrace.streams.operators.operator import own_fields
from headrace.streams.operators.widening import common_type

__all__ = ["ROW", "Columns", "Names", "Piece", "comparable", "keyed"]

ROW = "_row"  # the hash of what a row gives to the result beside its key
Names = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of a result: rows of the left, rows of the right beside them, or of one of them alone."""

    left: pa.Table | None
    left_rows: Ints | None
    right: pa.Table | None
    right_rows: Ints | None
    weights: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What is joined with what, by name and type."""

    keys: tuple[tuple[str, ...], tuple[str, ...]]
    fields: tuple[list[pa.Field], list[pa.Field]]  # of the inputs, keys in normal form
    made_of: tuple[tuple[str, pa.DataType, str | None, str | None], ...]  # name, type, left's, right's
    beside: tuple[tuple[str, ...], tuple[str, ...]]  # the columns that only one side gives

    @classmethod
    def of(
        cls,
        schemas: Sequence[pa.Schema],
        keys: tuple[tuple[str, ...], tuple[str, ...]],
        names: tuple[Names, Names] = ((), ()),
        *,
        only_left: bool = False,
        left_out: Sequence[str] = (),
    ) -> "Columns":
        """Refuses keys that cannot be compared and names that would be there twice.

        `names` are new names for columns of either side; `left_out` are the right's that do not
        come out.
        """
        fields = (_normal(schemas[0], keys[0], "left"), _normal(schemas[1], keys[1], "right"))
        _check_types(fields, keys)
        sides = [_renamed(*each) for each in zip(fields, names, ("left", "right"), strict=True)]
        pairs = {
            sides[0][left]: right
            for left, right in zip(*keys, strict=True)
            if sides[0][left] == sides[1][right]
        }
        left_types = {each.name: each.type for each in fields[0]}
        made: list[tuple[str, pa.DataType, str | None, str | None]] = [
            (new, left_types[old], old, pairs.get(new)) for old, new in sides[0].items()
        ]
        if not only_left:
            taken, alone = set(sides[0].values()), set(pairs.values()) | set(left_out)
            for each in fields[1]:
                new = sides[1][each.name]
                if each.name in alone:
                    continue
                if new in taken:
                    raise RequestError(
                        f"both sides of the join have a column {new!r}; rename it on one side, "
                        "give the other side's columns a prefix, or join on it by that name"
                    )
                made.append((new, each.type, None, each.name))
        beside = (
            tuple(left for _, _, left, right in made if left is not None and right is None),
            tuple(right for _, _, left, right in made if right is not None and left is None),
        )
        return cls(keys, fields, tuple(made), beside)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, kind) for name, kind, _, _ in self.made_of])

    def build(self, piece: Piece) -> list[pa.Array]:
        """The columns of the result for a piece of it."""
        count, built = len(piece.weights), []
        left, right = _taker(piece.left, piece.left_rows), _taker(piece.right, piece.right_rows)
        for _, kind, ours, theirs in self.made_of:
            if ours is not None and left is not None:
                built.append(left(ours))
            elif theirs is not None and right is not None:
                built.append(right(theirs))
            else:
                built.append(pa.nulls(count, kind))
        return built

    def hashes(self, piece: Piece) -> Hashes:
        """The hash of each row of a piece: equal rows have equal ones, whichever sides they are made of."""
        source, rows = (
            (piece.left, piece.left_rows) if piece.left is not None else (piece.right, piece.right_rows)
        )
        parts = [_numbers(source, HASH, rows)]
        sides = ((piece.left, piece.left_rows), (piece.right, piece.right_rows))
        for side, (table, rows) in enumerate(sides):
            if table is not None:
                parts.append(_numbers(table, ROW, rows))
            else:
                parts.append(np.broadcast_to(self._nothing(side), len(piece.weights)))
        return mixed(*parts)

    def _nothing(self, side: int) -> Hashes:
        kinds = {each.name: each.type for each in self.fields[side]}
        return hash_values([pa.nulls(1, kinds[name]) for name in self.beside[side]], 1)


def comparable(schemas: Sequence[pa.Schema], keys: Sequence[Sequence[str]]) -> list[pa.Schema]:
    """The columns of both sides, with a pair of key columns in the wider of their types, if there is one."""
    left, right = schemas
    for one, other in zip(*keys, strict=False):
        if one in left.names and other in right.names:
            kinds = left.field(one).type, right.field(other).type
            wide = common_type(*kinds)
            if wide is not None and kinds[0] != kinds[1]:
                left = left.set(left.get_field_index(one), pa.field(one, wide))
                right = right.set(right.get_field_index(other), pa.field(other, wide))
    return [left, right]


def keyed(rows: pa.Table, keys: Sequence[str], beside: Sequence[str] | None) -> pa.Table:
    """The rows with keys in normal form and their hash; with the hash of other columns, where given."""
    normal = key_columns(rows, keys)
    columns = {name: one_chunk(rows[name]) for name in rows.column_names}
    columns |= dict(zip(keys, normal, strict=True))
    columns[HASH] = pa.array(hash_columns(normal, rows.num_rows))
    table = pa.table(columns)
    if beside is not None:
        table = table.append_column(ROW, pa.array(hash_values(columns_of(table, beside), rows.num_rows)))
    return table


def _taker(table: pa.Table | None, rows: Ints | None) -> Callable[[str], pa.Array] | None:
    if table is None:
        return None
    if rows is None:
        return lambda name: one_chunk(table[name])
    places = pa.array(rows)
    return lambda name: one_chunk(table[name]).take(places)


def _numbers(table: pa.Table, name: str, rows: Ints | None) -> Hashes:
    values = one_chunk(table[name]).to_numpy()
    return np.asarray(values if rows is None else values[rows])


def _normal(schema: pa.Schema, keys: Sequence[str], side: str) -> list[pa.Field]:
    fields = {each.name: each for each in own_fields(schema)}
    if not keys:
        raise RequestError("a join needs at least one key column of each side")
    for name in keys:
        if name not in fields:
            raise RequestError(
                f"the {side} side has no column {name!r} to join on; it has {', '.join(fields)}"
            )
        fields[name] = fields[name].with_type(normal_type(fields[name].type, name))
    return list(fields.values())


def _check_types(
    fields: tuple[list[pa.Field], list[pa.Field]], keys: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    if len(keys[0]) != len(keys[1]):
        raise RequestError(f"a join on {len(keys[0])} columns of the left and {len(keys[1])} of the right")
    kinds = [{each.name: each.type for each in side} for side in fields]
    for left, right in zip(*keys, strict=True):
        if kinds[0][left] != kinds[1][right]:
            raise RequestError(
                f"the left side's {left!r} is {kinds[0][left]} and the right side's {right!r} is "
                f"{kinds[1][right]}; cast one of them to the other's type"
            )


def _renamed(fields: Sequence[pa.Field], names: Names, side: str) -> dict[str, str]:
    new = {each.name: each.name for each in fields}
    for name, other in names:
        if name not in new:
            raise RequestError(f"the {side} side has no column {name!r} to rename")
        new[name] = other
    if len(set(new.values())) < len(new):
        raise RequestError(f"two columns of the {side} side would have one name; rename them apart")
    return new
