"""Event time as an expression over a stream's columns: Spark's SQL, without a Spark.

The time of a record is judged where it is read, in Spark's Python workers, which have no
Spark SQL at hand. So the part of it that times are made with is understood here, as are schema
texts: columns and fields inside them, texts, numbers and intervals, `+ - * / ||`, CAST and the
functions in `headrace.streams.decode.time_functions`. What they give is what Spark gives;
everything else is refused by name.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Never

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ConfigError
from headrace.nearest import no_such
from headrace.streams.decode.time_functions import DATE, FUNCTIONS, SPAN, TIME, Computed, cast_function

__all__ = ["TimeExpression"]

_WORDS = re.compile(r"`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\d+\.\d+|\w+|\|\||\S")
_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_CASTS = {
    "string": pa.string(),
    "timestamp": TIME,
    "date": DATE,
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "double": pa.float64(),
}
_NAMED = {kind: name for name, kind in reversed(_CASTS.items())} | {SPAN: "interval"}

Rows = Sequence[pa.Array]


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of an expression: the type of its values, and how to compute them; a literal has its value."""

    kind: pa.DataType
    compute: Callable[[Rows, int], Computed]
    literal: Any = None


class TimeExpression:
    """An expression that gives a timestamp, a date, or a whole number; raises ConfigError if it does not."""

    def __init__(self, text: str, columns: pa.Schema) -> None:
        self.text = text
        self._root = _Parser(text, columns).whole()
        kind = self._root.kind
        if kind not in (TIME, DATE, pa.int32(), pa.int64()):
            raise ConfigError(
                f"event_time={text!r} gives a {_name(kind)}; make it a timestamp: to_timestamp(…), "
                "timestamp_seconds(…), timestamp_millis(…)"
            )

    def compute(self, columns: Rows, count: int) -> Computed:
        """Its value for each row of the columns; null where there is none."""
        return self._root.compute(columns, count)


class _Parser:
    """Recursive descent over the words of one expression."""

    def __init__(self, text: str, columns: pa.Schema) -> None:
        self._text, self._columns = text, columns
        self._words: list[str] = [*_WORDS.findall(text), ""]
        self._at = 0

    def whole(self) -> _Node:
        node = self._sum()
        if self._word:
            self._fail(f"{self._word!r} is not expected there")
        return node

    @property
    def _word(self) -> str:
        return self._words[self._at]

    def _next(self) -> str:
        self._at += 1
        return self._words[self._at - 1]

    def _accept(self, *words: str) -> str | None:
        return self._next() if self._word.lower() in words else None

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            self._fail(f"{word!r} is missing before {self._word or 'its end'!r}")

    def _fail(self, why: str) -> Never:
        raise ConfigError(f"event_time={self._text!r}: {why}")

    def _sum(self) -> _Node:
        node = self._product()
        while operator := self._accept("+", "-", "||"):
            node = self._call(operator, [node, self._product()])
        return node

    def _product(self) -> _Node:
        node = self._operand()
        while operator := self._accept("*", "/"):
            node = self._call(operator, [node, self._operand()])
        return node

    def _operand(self) -> _Node:
        word = self._next()
        if word == "(":
            node = self._sum()
            self._expect(")")
            return node
        if word.startswith("'"):
            return _literal(re.sub(r"\\(.)", r"\1", word[1:-1]), pa.string())
        if word == "-" and re.match(r"\d", self._word):
            word += self._next()
        if re.fullmatch(r"-?\d+(\.\d+)?", word):
            return self._number(word)
        if word.lower() == "interval" and self._word not in (".", ""):
            return self._interval()
        if word.lower() == "cast" and self._word == "(":
            return self._cast()
        if re.fullmatch(r"\w+", word) and self._accept("("):
            return self._call(word.lower(), self._arguments())
        if not re.fullmatch(r"\w+|`.+`", word):
            self._fail(f"{word or 'its end'!r} where a column or a function should stand")
        return self._column(word)

    def _number(self, word: str) -> _Node:
        if "." in word:
            return _literal(float(word), pa.float64())
        return _literal(int(word), pa.int32() if abs(int(word)) < 2**31 else pa.int64())

    def _interval(self) -> _Node:
        total, number = 0, self._next().strip("'")
        while True:
            unit = self._next().lower().removesuffix("s")
            if not re.fullmatch(r"\d+", number) or unit not in _UNITS_US:
                self._fail(f"interval {number} {unit}: write interval 5 minutes, in {', '.join(_UNITS_US)}s")
            total += int(number) * _UNITS_US[unit]
            if not re.fullmatch(r"\d+", self._word):
                return _literal(total, SPAN)
            number = self._next()

    def _cast(self) -> _Node:
        self._expect("(")
        node = self._sum()
        self._expect("as")
        name = self._next()
        self._expect(")")
        target = _CASTS.get(name.lower())
        function = None if target is None else cast_function(node.kind, target)
        if function is None:
            self._fail(f"a {_name(node.kind)} cannot be cast to {name} in an event time")
        compute = function.compute
        return _Node(function.kind, lambda columns, count: compute([node.compute(columns, count)], count))

    def _arguments(self) -> list[_Node]:
        found: list[_Node] = []
        if self._accept(")"):
            return found
        while True:
            found.append(self._sum())
            if self._accept(")"):
                return found
            self._expect(",")

    def _call(self, name: str, arguments: list[_Node]) -> _Node:
        name = {"substr": "substring"}.get(name, name)
        check = FUNCTIONS.get(name)
        if check is None:
            self._fail(no_such("function", name, [each for each in FUNCTIONS if each.isidentifier()]))
        function = check([each.kind for each in arguments], [each.literal for each in arguments])
        if function is None:
            shown = ", ".join(
                repr(each.literal) if isinstance(each.literal, str) else _name(each.kind)
                for each in arguments
            )
            self._fail(f"{name}({shown}) is not among what an event time may be made with")
        compute = function.compute
        return _Node(
            function.kind,
            lambda columns, count: compute([each.compute(columns, count) for each in arguments], count),
        )

    def _column(self, word: str) -> _Node:
        names = [_unquoted(word)]
        while self._accept("."):
            names.append(_unquoted(self._next()))
        first = _match(names[0], self._columns.names)
        if first is None:
            self._fail(no_such("column", names[0], self._columns.names))
        index, kind = self._columns.names.index(first), self._columns.field(first).type
        inner: list[str] = []
        for name in names[1:]:
            known = [each.name for each in kind] if pa.types.is_struct(kind) else []
            found = _match(name, known)
            if found is None:
                self._fail(no_such("field", ".".join(names), known))
            inner.append(found)
            kind = kind.field(found).type

        def compute(columns: Rows, count: int) -> Computed:
            del count
            column = columns[index]
            return Computed(_plain(pc.struct_field(column, inner) if inner else column))

        return _Node(_wide(kind), compute)


def _match(name: str, known: Sequence[str]) -> str | None:
    """A name as it is declared: Spark does not tell names apart by case."""
    if name in known:
        return name
    return next((each for each in known if each.lower() == name.lower()), None)


def _unquoted(word: str) -> str:
    return word[1:-1].replace("``", "`") if word.startswith("`") else word


def _wide(kind: pa.DataType) -> pa.DataType:
    """Small numbers count as ints, and floats as doubles."""
    if kind in (pa.int8(), pa.int16()):
        return pa.int32()
    return pa.float64() if kind == pa.float32() else kind


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(_wide(column.type))


def _literal(value: Any, kind: pa.DataType) -> _Node:
    scalar = pa.scalar(value, kind)
    return _Node(kind, lambda _, count: Computed(pa.repeat(scalar, count)), value)


def _name(kind: pa.DataType) -> str:
    return _NAMED.get(kind, str(kind))
