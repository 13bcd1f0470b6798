"""Spark's schema texts ("user string, amount double") into Arrow schemas, without a Spark.

Spark's own parser lives in its Java half, which neither its Python workers nor
`verify` have at hand. Understood is what JSON values can hold; everything else is
refused by name.
"""

import re
from collections.abc import Callable
from typing import Never

import pyarrow as pa

from headrace.errors import ConfigError
from headrace.nearest import no_such

__all__ = ["arrow_schema"]

_SIMPLE: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
# Names that other systems have for them.
_MEANT = {
    **dict.fromkeys(("str", "text", "varchar", "char", "uuid", "json"), "string"),
    **dict.fromkeys(("number", "float64"), "double"),
    **dict.fromkeys(("datetime", "timestamptz", "time"), "timestamp"),
    **dict.fromkeys(("int64", "uint32"), "long"),
    "int32": "int",
    "bool": "boolean",
    "list": "array<…>",
    "dict": "map<string, …>",
    "object": "struct<…>",
}
_DECIMAL = ("decimal", "dec", "numeric")
_TOKENS = re.compile(r"`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\w+|[<>(),:]|\S")


def arrow_schema(text: str) -> pa.Schema:
    """The columns of "name type, name type, …"; raises ConfigError naming what was not understood."""
    parser = _Parser(text)
    schema = pa.schema(parser.columns(end=""))
    twice = {name for name in schema.names if schema.names.count(name) > 1}
    if twice:
        raise ConfigError(f"schema {text!r} names {', '.join(sorted(twice))} twice")
    return schema


class _Parser:
    """Recursive descent over the tokens of one schema text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [*_TOKENS.findall(text), ""]
        self._at = 0

    def columns(self, end: str) -> list[pa.Field]:
        """Columns up to the token `end`, which is taken too."""
        found: list[pa.Field] = []
        if self._accept(end):
            return found
        while True:
            found.append(self._column())
            if self._accept(end):
                return found
            self._expect(",")

    def _column(self) -> pa.Field:
        name = self._next()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not re.fullmatch(r"\w+", name):
            self._fail(f"{name or 'its end'!r} where a column's name should stand")
        self._accept(":")
        kind = self._type()
        nullable = not (self._accept("not") and self._expect("null"))
        if self._accept("comment"):
            self._next()
        return pa.field(name, kind, nullable)

    def _type(self) -> pa.DataType:
        name = self._next().lower()
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in _DECIMAL:
            return self._decimal()
        if name == "array":
            return self._between(lambda: pa.list_(pa.field("element", self._type())))
        if name == "struct":
            self._expect("<")
            return pa.struct(self.columns(end=">"))
        if name == "map":
            return self._between(self._map)
        known = [*_SIMPLE, "decimal", "array", "struct", "map"]
        if name in _MEANT:
            return self._fail(f"there is no type {name!r}; use {_MEANT[name]}. There is {', '.join(known)}")
        return self._fail(no_such("type", name, known))

    def _map(self) -> pa.DataType:
        names = self._type()
        if not pa.types.is_string(names):
            self._fail(f"a map with keys of {names}; names in JSON are strings: map<string, …>")
        self._expect(",")
        return pa.map_(names, self._type())

    def _decimal(self) -> pa.DataType:
        if not self._accept("("):
            return pa.decimal128(10, 0)
        precision = self._number()
        scale = self._number() if self._accept(",") else 0
        self._expect(")")
        if not 1 <= precision <= 38 or scale > precision:
            self._fail(f"decimal({precision},{scale}) has more than 38 digits, or more behind the point")
        return pa.decimal128(precision, scale)

    def _between(self, inner: Callable[[], pa.DataType]) -> pa.DataType:
        self._expect("<")
        kind = inner()
        self._expect(">")
        return kind

    def _number(self) -> int:
        token = self._next()
        if not token.isdecimal():
            self._fail(f"{token!r} where a number should stand")
        return int(token)

    def _next(self) -> str:
        token: str = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _accept(self, token: str) -> bool:
        if self._tokens[self._at].lower() != token:
            return False
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return True

    def _expect(self, token: str) -> bool:
        return self._accept(token) or self._fail(
            f"{self._tokens[self._at] or 'its end'!r} where {token!r} should stand"
        )

    def _fail(self, what: str) -> Never:
        raise ConfigError(f"schema {self._text!r}: {what}")
