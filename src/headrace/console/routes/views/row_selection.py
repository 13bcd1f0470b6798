"""Which rows of a view a query string asks for: filters, order, and the place to go on from. Pure.

A filter is `column=value` or `column.ge=value`; all of them must hold. A cursor is the
place after a row: its values in the columns of the order and of the key. The next page is
what comes after that place, so rows that come or go elsewhere neither repeat nor hide
others, as counting rows would.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import pyarrow as pa

from headrace.console.problems import ProblemError
from headrace.errors import RequestError
from headrace.views import Condition, Order, ViewSchema, from_json, parse_condition, parse_order, to_json

__all__ = [
    "CursorSegment",
    "conditions",
    "cursor_after",
    "full_order",
    "order_of",
    "read_cursor",
    "segments_after",
]

_MOST_CHARACTERS = 16 * 1024

CursorSegment = tuple[Condition, ...]


def conditions(
    columns: Sequence[str], given: Iterable[tuple[str, str]], reserved: Iterable[str]
) -> list[Condition]:
    """The filters among the parameters; `reserved` ones are not filters. Raises ProblemError.

    A column with the name of a reserved parameter is reached as `name.eq`.
    """
    skipped = set(reserved)
    return [_condition(columns, name, text) for name, text in given if name not in skipped]


def _condition(columns: Sequence[str], name: str, text: str) -> Condition:
    try:
        return parse_condition(columns, name, text)
    except RequestError as error:
        raise ProblemError(400, str(error), kind="bad-filter") from None


def order_of(text: str | None) -> list[Order]:
    """`-revenue,region`: by falling revenue, then by region. Raises ProblemError for a column named twice."""
    try:
        return parse_order(text)
    except RequestError as error:
        raise ProblemError(400, str(error), kind="bad-order") from None


def full_order(schema: ViewSchema, order: Sequence[Order]) -> tuple[Order, ...]:
    """The order as stores have it: what it leaves equal comes by key."""
    named = {each.column for each in order}
    return (*order, *(Order(name) for name in schema.key if name not in named))


def cursor_after(order: Sequence[Order], rows: pa.Table) -> str:
    """The place after the last of these rows."""
    last = rows.slice(rows.num_rows - 1)
    values = [to_json(last.column(each.column))[0] for each in order]
    return base64.urlsafe_b64encode(orjson.dumps([_fingerprint(order), values])).decode().rstrip("=")


def read_cursor(schema: ViewSchema, order: Sequence[Order], text: str) -> list[Any]:
    """The values of the place, as Python has them; raises ProblemError unless it is of this order."""
    try:
        if len(text) > _MOST_CHARACTERS:
            raise ValueError("too long")
        mark, values = orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
        if mark != _fingerprint(order) or len(values) != len(order):
            raise ValueError("of another order")
        return [
            from_json([value], schema.columns.field(each.column).type)[0].as_py()
            for each, value in zip(order, values, strict=True)
        ]
    except (ValueError, TypeError, KeyError, ArithmeticError, binascii.Error, pa.ArrowException):
        raise ProblemError(
            400,
            "this cursor does not belong to this query",
            "pass `next` from the previous response, with the same order and filters",
            kind="bad-cursor",
        ) from None


def _fingerprint(order: Sequence[Order]) -> str:
    return ",".join(("-" if each.descending else "") + each.column for each in order)


def segments_after(order: Sequence[Order], values: Sequence[Any]) -> list[CursorSegment]:
    """Conditions whose rows, one after the other, are those after a place.

    Nulls come first in a rising order and last in a falling one, as in every store.
    """
    found: list[CursorSegment] = []
    for index in reversed(range(len(order))):
        same = tuple(
            _same(each.column, value) for each, value in zip(order[:index], values[:index], strict=True)
        )
        found += [(*same, each) for each in _beyond(order[index], values[index])]
    return found


def _same(column: str, value: Any) -> Condition:
    return Condition(column, "is_null") if value is None else Condition(column, "=", value)


def _beyond(order: Order, value: Any) -> list[Condition]:
    if not order.descending:
        return [Condition(order.column, "not_null" if value is None else ">", value)]
    if value is None:
        return []
    return [Condition(order.column, "<", value), Condition(order.column, "is_null")]
