"""Which rows of a view to read, and in which order: plain data, never code. Pure.

One meaning for every store: a null meets no condition but `is_null`; NaN is equal to
itself and greater than every other number; text and binary compare by their bytes;
nulls come first in ascending order. Rows that an order leaves equal come by key, so
pages never overlap.
"""

import datetime
import decimal
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import RequestError
from headrace.views.schema import ViewSchema, is_nested

__all__ = ["OPERATORS", "Choose", "Condition", "Order", "Selection", "select"]

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "in", "prefix", "is_null", "not_null")
_MAX_LISTED = 1_000
_MOST_DIGITS = 76  # of a decimal that is compared with; Spark's have 38


@dataclass(frozen=True, slots=True)
class Condition:
    """`column op value`. `in` takes a list, `prefix` text, `is_null` and `not_null` nothing."""

    column: str
    op: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Order:
    """By a column; `descending` puts the largest first and nulls last."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """A checked query: conditions that all hold, a total order, and a page of it."""

    where: tuple[Condition, ...]
    order: tuple[Order, ...]
    limit: int | None
    offset: int

    @property
    def is_whole(self) -> bool:
        """Whether it selects every row."""
        return not self.where and self.limit is None and not self.offset

    @classmethod
    def of(
        cls,
        schema: ViewSchema,
        where: Iterable[Condition] = (),
        order: Iterable[Order] = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> "Selection":
        """Checked against the view: values have their column's type. Raises RequestError."""
        if offset < 0 or (limit is not None and limit < 0):
            raise RequestError(f"limit {limit} and offset {offset} must be 0 or more")
        ordered = [_checked_order(schema, each) for each in order]
        named = {each.column for each in ordered}
        ordered += [Order(name) for name in schema.key if name not in named]
        return cls(tuple(_checked(schema, each) for each in where), tuple(ordered), limit, offset)


def _column(schema: ViewSchema, name: str) -> pa.Field:
    if name not in schema.columns.names:
        raise RequestError(
            f"view {schema.name!r} has no column {name!r}; it has {', '.join(schema.columns.names)}"
        )
    return schema.columns.field(name)


def _checked_order(schema: ViewSchema, order: Order) -> Order:
    if is_nested(_column(schema, order.column).type):
        raise RequestError(f"{order.column!r} cannot be ordered by; choose another column")
    return order


def _checked(schema: ViewSchema, given: Condition) -> Condition:
    kind = _column(schema, given.column).type
    if given.op not in OPERATORS:
        raise RequestError(f"{given.op!r} is not an operator; use one of {', '.join(OPERATORS)}")
    if given.op in ("is_null", "not_null"):
        return Condition(given.column, given.op)
    if is_nested(kind):
        raise RequestError(f"{given.column!r} is of type {kind}; only is_null and not_null apply to it")
    if given.op == "in":
        if not isinstance(given.value, Sequence) or isinstance(given.value, str | bytes):
            raise RequestError(f"{given.column!r} in …: give a list of values")
        if len(given.value) > _MAX_LISTED:
            raise RequestError(f"{given.column!r} in …: at most {_MAX_LISTED} values, not {len(given.value)}")
        return Condition(given.column, "in", tuple(_value(given, kind, each) for each in given.value))
    if given.op == "prefix" and not _is_text(kind):
        raise RequestError(f"{given.column!r} is of type {kind}; prefix applies to text only")
    return Condition(given.column, given.op, _value(given, kind, given.value))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _value(given: Condition, kind: pa.DataType, value: Any) -> Any:
    """The value in the column's Python type; text stands for any value, as it comes from a URL."""
    if value is None:
        raise RequestError(f"{given.column!r} {given.op} null: use is_null or not_null")
    try:
        return _coerced(kind, value)
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
        raise RequestError(f"{given.column!r}: {value!r} is not a value of type {kind}: {error}") from None


def _coerced(kind: pa.DataType, value: Any) -> Any:
    types = pa.types
    if types.is_boolean(kind):
        return _boolean(value)
    if isinstance(value, bool):
        raise ValueError("a boolean is not of that type")
    if types.is_integer(kind):
        return pa.scalar(_integer(value), kind).as_py()
    if types.is_floating(kind):
        return pa.scalar(float(value), kind).as_py()
    if types.is_decimal(kind):
        return _decimal(value)
    if types.is_timestamp(kind):
        return _timestamp(value, kind)
    if types.is_date(kind):
        return value if type(value) is datetime.date else datetime.date.fromisoformat(value)
    if _is_text(kind) and not isinstance(value, str):
        raise ValueError("give text")
    if types.is_binary(kind) or types.is_large_binary(kind):
        return bytes.fromhex(value) if isinstance(value, str) else bytes(value)
    return value


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise ValueError("write true or false")


def _integer(value: Any) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError("it is not a whole number")
    return int(value)


def _decimal(value: Any) -> decimal.Decimal:
    """A number of limited length: 1e999999999 would be a gigabyte of digits."""
    number = decimal.Decimal(repr(value) if isinstance(value, float) else value)
    if (
        not number.is_finite()
        or abs(number.adjusted()) > _MOST_DIGITS
        or len(number.as_tuple().digits) > _MOST_DIGITS
    ):
        raise ValueError(f"give a number of at most {_MOST_DIGITS} digits")
    return number


def _timestamp(value: Any, kind: pa.DataType) -> datetime.datetime:
    moment = value if isinstance(value, datetime.datetime) else datetime.datetime.fromisoformat(value)
    if kind.tz is None:
        return moment.replace(tzinfo=None) if moment.tzinfo is None else _naive(moment)
    return moment.replace(tzinfo=datetime.UTC) if moment.tzinfo is None else moment.astimezone(datetime.UTC)


def _naive(moment: datetime.datetime) -> datetime.datetime:
    return moment.astimezone(datetime.UTC).replace(tzinfo=None)


Choose = Callable[[ViewSchema], Selection]
"""What a reader asks for, checked once the view's schema is known."""


# --- on Arrow tables, for the stores that hold them ----------------------------------------------


def select(rows: pa.Table, selection: Selection) -> pa.Table:
    """The selected rows of the table."""
    for condition in selection.where:
        rows = rows.filter(_mask(rows[condition.column], condition))
    rows = rows.take(_sorted_indices(rows, selection.order))
    return rows.slice(selection.offset, selection.limit)


def _mask(column: pa.ChunkedArray, condition: Condition) -> pa.ChunkedArray:
    op, value = condition.op, condition.value
    if op == "is_null":
        return pc.is_null(column)
    if op == "not_null":
        return pc.is_valid(column)
    if op == "prefix":
        return pc.starts_with(column, value)
    if op == "in":
        found = pa.chunked_array([pa.array([False] * len(column), pa.bool_())])
        for each in value:
            found = pc.or_(found, pc.fill_null(_compare(column, "=", each), False))
        return found
    return _compare(column, op, value)


_COMPARE = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _compare(column: pa.ChunkedArray, op: str, value: Any) -> pa.ChunkedArray:
    if pa.types.is_floating(column.type):
        return _compare_floats(column, op, value)
    if pa.types.is_decimal(column.type):
        return _COMPARE[op](column, pa.scalar(value))  # a scalar with its own scale: nothing is rounded
    return _COMPARE[op](column, pa.scalar(value, column.type))


def _compare_floats(column: pa.ChunkedArray, op: str, value: float) -> pa.ChunkedArray:
    """With NaN as the greatest number."""
    nan = pc.is_nan(column)
    if math.isnan(value):
        column, value = pc.if_else(nan, pa.scalar(1, pa.int8()), pa.scalar(0, pa.int8())), 1
        return _COMPARE[op](column, pa.scalar(value, pa.int8()))
    plain = _COMPARE[op](column, pa.scalar(value, column.type))
    return pc.or_(plain, nan) if op in (">", ">=") else plain


def _sorted_indices(rows: pa.Table, order: Sequence[Order]) -> pa.Array:
    keys: list[tuple[str, str]] = []
    columns: dict[str, Any] = {}
    for index, each in enumerate(order):
        column, way = rows[each.column], "descending" if each.descending else "ascending"
        parts = [pc.cast(pc.is_valid(column), pa.int8())]
        if pa.types.is_floating(column.type):
            parts.append(pc.cast(pc.is_nan(column), pa.int8()))
        for part, values in enumerate([*parts, _sortable(column)]):
            columns[f"{index}.{part}"] = values
            keys.append((f"{index}.{part}", way))
    return pc.sort_indices(pa.table(columns), sort_keys=keys)


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column
