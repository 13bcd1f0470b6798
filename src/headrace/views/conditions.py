"""Conditions and orders as they are written on the command line and in URLs. Pure.

A condition is a column, optionally followed by a dot and an operator, and a text:
`region` and `north`, `revenue.ge` and `10`. An order is `-revenue,region`.
"""

import json
from collections.abc import Sequence
from typing import Any

from headrace.errors import RequestError
from headrace.nearest import no_such
from headrace.views.selection import Condition, Order

__all__ = ["parse_condition", "parse_order"]

_OPERATORS = {"eq": "=", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_OTHERS = ("in", "prefix", "null")


def parse_condition(columns: Sequence[str], name: str, text: str) -> Condition:
    """The condition; raises RequestError with the alternatives if there is no such column or operator."""
    if name in columns:
        return Condition(name, "=", text)
    column, dot, word = name.rpartition(".")
    if not dot or column not in columns:
        raise RequestError(no_such("column", (column or name)[:80], columns))
    if word in _OPERATORS:
        return Condition(column, _OPERATORS[word], text)
    match word:
        case "prefix":
            return Condition(column, "prefix", text)
        case "in":
            return Condition(column, "in", _listed(text))
        case "null" if text in ("true", "false"):
            return Condition(column, "is_null" if text == "true" else "not_null")
        case "null":
            raise RequestError(f"{name}={text[:40]!r}: give true or false")
    words = ", ".join([*_OPERATORS, *_OTHERS])
    raise RequestError(f"{name!r}: there is no operator {word[:40]!r}; the operators are: {words}")


def _listed(text: str) -> list[Any]:
    """Values separated by commas, or a JSON array, for values that contain commas."""
    if not text.startswith("["):
        return text.split(",")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise RequestError(f"{text[:40]!r} is not a JSON array") from None
    if any(isinstance(each, dict | list) for each in found):
        raise RequestError(f"{text[:40]!r}: give single values")
    return list(found)


def parse_order(text: str | None) -> list[Order]:
    """`-revenue,region`: by descending revenue, then by region. Raises RequestError for repeated columns."""
    names = [each.strip() for each in (text or "").split(",") if each.strip()]
    found = [Order(name.removeprefix("-"), name.startswith("-")) for name in names]
    if len({each.column for each in found}) < len(found):
        raise RequestError(f"order={(text or '')[:80]!r} names a column twice")
    return found
