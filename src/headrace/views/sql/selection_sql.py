"""A selection as SQL text and its parameters. Pure.

Names are quoted and come from the view's schema only; values are parameters. What the
two databases do differently is in a Dialect.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from headrace.views.schema import ViewSchema
from headrace.views.selection import Condition, Order, Selection

__all__ = ["Dialect", "Sql", "quoted", "selection_sql"]


class Dialect(Protocol):
    """How one database compares and orders."""

    placeholder: str

    def operand(self, name: str, kind: pa.DataType) -> str:
        """A column as it stands in comparisons and orders: quoted, with its collation."""

    def parameter(self, value: Any, kind: pa.DataType) -> Any:
        """A value as the driver takes it."""

    def order(self, operand: str, descending: bool) -> str:
        """One term of ORDER BY that puts nulls first ascending, last descending."""


@dataclass(frozen=True, slots=True)
class Sql:
    """Text, and the values of its placeholders in their order."""

    text: str
    parameters: tuple[Any, ...]


def quoted(name: str) -> str:
    """An identifier that can be nothing else."""
    return '"' + name.replace('"', '""') + '"'


def selection_sql(
    schema: ViewSchema, selection: Selection, dialect: Dialect, table: str, *, more: str = ""
) -> Sql:
    """SELECT with everything the selection says, and a column more; `table` is already quoted."""
    names = [*schema.columns.names, more] if more else schema.columns.names
    columns = ", ".join(quoted(name) for name in names)
    parts, parameters = [f"SELECT {columns} FROM {table}"], []  # noqa: S608 - quoted
    if selection.where:
        terms = [_condition(schema, each, dialect) for each in selection.where]
        parts.append("WHERE " + " AND ".join(each.text for each in terms))
        parameters += [value for each in terms for value in each.parameters]
    parts.append("ORDER BY " + ", ".join(_order(schema, each, dialect) for each in selection.order))
    if selection.limit is not None or selection.offset:
        limit = (1 << 63) - 1 if selection.limit is None else selection.limit
        parts.append(f"LIMIT {dialect.placeholder} OFFSET {dialect.placeholder}")
        parameters += [limit, selection.offset]
    return Sql(" ".join(parts), tuple(parameters))


def _order(schema: ViewSchema, order: Order, dialect: Dialect) -> str:
    operand = dialect.operand(order.column, schema.columns.field(order.column).type)
    return dialect.order(operand, order.descending)


def _condition(schema: ViewSchema, condition: Condition, dialect: Dialect) -> Sql:
    kind = schema.columns.field(condition.column).type
    name, operand = quoted(condition.column), dialect.operand(condition.column, kind)
    if condition.op == "is_null":
        return Sql(f"{name} IS NULL", ())
    if condition.op == "not_null":
        return Sql(f"{name} IS NOT NULL", ())
    if condition.op == "in":
        values = tuple(dialect.parameter(each, kind) for each in condition.value)
        if not values:
            return Sql("1 = 0", ())
        return Sql(f"{operand} IN ({', '.join([dialect.placeholder] * len(values))})", values)
    if condition.op == "prefix":
        return _prefix(operand, condition.value, dialect.placeholder)
    value = dialect.parameter(condition.value, kind)
    return Sql(f"{operand} {condition.op} {dialect.placeholder}", (value,))


def _prefix(operand: str, prefix: str, placeholder: str) -> Sql:
    """A range, which an index serves, and which no wildcard in the text can widen."""
    end = _successor(prefix)
    if end is None:
        return Sql(f"{operand} >= {placeholder}", (prefix,))
    return Sql(f"({operand} >= {placeholder} AND {operand} < {placeholder})", (prefix, end))


def _successor(prefix: str) -> str | None:
    """The first text, by bytes, behind all that begin so; None if there is none."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    point = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if point == 0xD800 else point)  # surrogates are no characters
