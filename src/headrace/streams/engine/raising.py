"""Which of a user's expressions can raise for some row: all but those that are known never to.

To try an expression and go on costs as much as a cheap one itself (some 0.3 µs a row), so
that comparisons, conditions and sums of doubles, of which most steps are made, are not tried.
"""

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame

__all__ = ["may_raise"]

_SAFE = {
    *("AttributeReference", "Literal", "Alias", "GetStructField", "CreateNamedStruct", "CaseWhen", "If"),
    *("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"),
    *("And", "Or", "Not", "In", "IsNull", "IsNotNull", "IsNaN", "Coalesce", "NaNvl"),
    *("Upper", "Lower", "Concat", "StringTrim", "StartsWith", "EndsWith", "Contains", "Length"),
}
_SAFE_FOR_FLOATS = {"Add", "Subtract", "Multiply", "UnaryMinus", "Abs"}
_SAFE_BY_A_NUMBER = {"Divide", "Remainder"}
_FLOATS = ("float", "double")
_WIDER = {
    "tinyint": ("smallint", "int", "bigint", *_FLOATS, "string"),
    "smallint": ("int", "bigint", *_FLOATS, "string"),
    "int": ("bigint", *_FLOATS, "string"),
    "bigint": (*_FLOATS, "string"),
    "float": ("double", "string"),
    "double": ("string",),
    "boolean": ("string",),
    "date": ("timestamp", "string"),
}
_NUMBERS = ("tinyint", "smallint", "int", "bigint", *_FLOATS)


def may_raise(frame: DataFrame, columns: Sequence[Column]) -> bool:
    """Whether one of the columns, computed from the frame's, could raise; True where that is not known."""
    plan: Any = frame.select(*columns)._jdf.queryExecution().analyzed()
    found = plan.expressions()
    return not all(_is_safe(found.apply(number)) for number in range(found.size()))


def _is_safe(expression: Any) -> bool:
    name, kind = _name(expression), _kind(expression)
    children = [expression.children().apply(number) for number in range(expression.children().size())]
    if name == "Cast":
        is_safe = _is_wider(_kind(children[0]), kind)
    elif name in _SAFE_FOR_FLOATS:
        is_safe = kind in _FLOATS
    elif name in _SAFE_BY_A_NUMBER:
        is_safe = kind in _NUMBERS and _is_a_number(children[1]) and (kind in _FLOATS or name == "Remainder")
    else:
        is_safe = name in _SAFE
    return is_safe and all(map(_is_safe, children))


def _is_wider(kind: str, to: str) -> bool:
    """Whether every value of one type has one in another."""
    if kind.startswith("decimal"):
        return to in (*_FLOATS, "string")
    return kind == to or to in _WIDER.get(kind, ())


def _is_a_number(expression: Any) -> bool:
    """Whether it is written out in the expression, and not 0."""
    while _name(expression) == "Cast":
        expression = expression.children().apply(0)
    value = expression.value() if _name(expression) == "Literal" else None
    return value is not None and float(str(value)) != 0


def _name(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _kind(expression: Any) -> str:
    return str(expression.dataType().simpleString())
