"""JSON objects that all look alike, cut at their commas; no Spark, no I/O.

A stream's values are mostly written by one program, so that all have the same keys in
the same order, with the same spaces: only what stands between differs. One value gives
the shape, say

    {"user":"u00042","amount":7}     ->    {"user":" · "   ,   "amount": · }

and all values of a block are cut at their commas at once, by positions in the block's
own bytes, which is several times faster than a JSON parser. Nothing is taken on trust. A
value is of the shape if and only if

- it has as many cells as the shape,
- each cell begins with the shape's text before the value, ends with the text behind it,
  and is long enough for both,
- no string holds a quote, a backslash or a control character (there are exactly as
  many quotes as in the shape, and none of the others at all), so that each is a whole
  JSON string and means itself,
- every number and boolean is one by JSON's grammar.

Then the value is an object of exactly these keys and values, and what is cut out is
what a JSON parser would find. Values of which any of this is not so are left to that
parser (`json_values`); both give the same for the same value.
"""

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.json_text import Ints, Text

__all__ = ["Shape", "can_be_shaped"]

_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_BARE = re.compile(rb"[-+.0-9A-Za-z]+")
_COLON = re.compile(rb" *: *")
_QUOTE, _SPACE, _COMMA, _BACKSLASH = 0x22, 0x20, 0x2C, 0x5C
_CACHED_BYTES = 1 << 17  # looked at four times, so better not from memory
_MAX_SAMPLE_BYTES = 1 << 16


def can_be_shaped(fields: pa.Schema) -> bool:
    """Whether all these fields are of types that a cell can be turned into."""
    return len(fields) > 0 and all(_kind(field.type) is not None for field in fields)


def _kind(wanted: pa.DataType) -> str | None:
    """What must stand in the JSON for a column of this type."""
    if pa.types.is_string(wanted) or pa.types.is_date32(wanted):
        return "string"
    if pa.types.is_timestamp(wanted) and wanted.tz is not None:
        return "string"
    if pa.types.is_signed_integer(wanted) or wanted in (pa.float32(), pa.float64()):
        return "number"
    return "boolean" if pa.types.is_boolean(wanted) else None


@dataclass(frozen=True, slots=True)
class _Cell:
    """One member of the object: its key, what kind of value it has, and the text around that."""

    key: str
    kind: str
    before: bytes
    behind: bytes


@dataclass(frozen=True, slots=True)
class Shape:
    """The text that values of one kind have in common, cell by cell."""

    cells: tuple[_Cell, ...]

    @classmethod
    def of(cls, value: bytes) -> Self | None:
        """The shape of a value; None if it is no flat object of strings, numbers and booleans."""
        if len(value) > _MAX_SAMPLE_BYTES or not value.startswith(b"{") or not value.endswith(b"}"):
            return None
        try:
            members = json.loads(value, object_pairs_hook=_Members)
        except (ValueError, RecursionError):
            return None
        texts = value.split(b",")
        if not isinstance(members, _Members) or len(texts) != len(members) or b"\\" in value:
            return None
        cells = [
            _cell(text, key, content, at == 0, at == len(texts) - 1)
            for at, (text, (key, content)) in enumerate(zip(texts, members, strict=True))
        ]
        found = [cell for cell in cells if cell is not None]
        if len(found) < len(cells) or len({cell.key for cell in found}) < len(found):
            return None
        return cls(tuple(found))

    def fits(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        """Values that may be of this shape, at a glance; `read` has the last word."""
        text = Text.of(values)
        alike = pc.and_(
            pc.starts_with(values, self.cells[0].before), pc.ends_with(values, self.cells[-1].behind)
        )
        fitting: npt.NDArray[np.bool_] = (
            alike.to_numpy(zero_copy_only=False)
            & (text.counts(_QUOTE) == self._quotes)
            & (text.counts(_COMMA) == len(self.cells) - 1)
        )
        return fitting

    def read(self, values: pa.Array, fields: pa.Schema) -> tuple[pa.Array, ...] | None:
        """A column for each field, if every value is of this shape; else None. No value may be null."""
        kinds = {cell.key: cell.kind for cell in self.cells}
        if any(kinds.get(field.name, _kind(field.type)) != _kind(field.type) for field in fields):
            return None
        text = Text.of(values)
        cells = self._cut(text)
        if cells is None:
            return None
        try:
            return self._columns(text, cells, fields)
        except pa.ArrowInvalid:  # a number that cannot be converted
            return None

    @property
    def _quotes(self) -> int:
        return sum(cell.before.count(b'"') + cell.behind.count(b'"') for cell in self.cells)

    def _cut(self, text: Text) -> list[tuple[Ints, Ints]] | None:
        """Where the contents of each cell begin and end, if the text around all of them is the shape's."""
        commas = self._commas(text)
        if commas is None:
            return None
        begins, ends = (text.starts, *(at + 1 for at in commas)), (*commas, text.ends)
        cut = [
            (begin + len(cell.before), end - len(cell.behind))
            for cell, begin, end in zip(self.cells, begins, ends, strict=True)
        ]
        if any((last < first).any() for first, last in cut):
            return None
        # Between two contents stands one text: the end of a cell, the comma, the beginning of the next.
        behind = [one.behind + b"," + next_one.before for one, next_one in pairwise(self.cells)]
        behind.append(self.cells[-1].behind)
        around = [(self.cells[0].before, text.starts), *zip(behind, (last for _, last in cut), strict=True)]
        return cut if all(text.has(piece, places) for piece, places in around) else None

    def _commas(self, text: Text) -> list[Ints] | None:
        """The commas of every value, first ones first, if all have as many, and only legal characters."""
        quotes, commas = 0, []
        for start in range(0, len(text.octets), _CACHED_BYTES):
            part = text.octets[start : start + _CACHED_BYTES]
            if part.min() < _SPACE or (part == _BACKSLASH).any():
                return None
            quotes += int(np.count_nonzero(part == _QUOTE))
            commas.append(np.flatnonzero(part == _COMMA) + start)
        count, each = len(text.starts), len(self.cells) - 1
        found = np.concatenate(commas) if commas else np.zeros(0, np.int64)
        if quotes != self._quotes * count or len(found) != each * count:
            return None
        table = found.reshape(count, each)
        if each and ((table[:, 0] < text.starts).any() or (table[:, -1] >= text.ends).any()):
            return None
        return [np.ascontiguousarray(table[:, at]) for at in range(each)]

    def _columns(
        self, text: Text, cells: list[tuple[Ints, Ints]], fields: pa.Schema
    ) -> tuple[pa.Array, ...] | None:
        wanted = {field.name: field.type for field in fields}
        found: dict[str, pa.Array] = {}
        for cell, (first, last) in zip(self.cells, cells, strict=True):
            if cell.key not in wanted and cell.kind == "string":
                continue
            kind = wanted.get(cell.key)
            if cell.kind == "number" and (kind is None or pa.types.is_integer(kind)):
                numbers = text.integers(first, last)
                if numbers is not None:
                    if kind is not None:
                        found[cell.key] = pa.array(numbers).cast(kind)
                    continue
            content = text.contents(first, last)
            if not _is_legal(content, cell.kind, kind):
                return None
            if kind is not None:
                found[cell.key] = _convert(content, kind)
        return tuple(
            found[field.name] if field.name in found else pa.nulls(len(text.starts), field.type)
            for field in fields
        )


class _Members(list[tuple[str, Any]]):
    """The members of an object in order, so that a key that stands twice is noticed."""


def _cell(text: bytes, key: str, content: Any, is_first: bool, is_last: bool) -> _Cell | None:
    """The member that this piece between commas is; None if it is not the whole of one, or not flat."""
    name = b'"' + key.encode() + b'"'
    lead, found, rest = text.partition(name)
    colon = _COLON.match(rest)
    if not found or lead.strip(b" ") != (b"{" if is_first else b"") or colon is None:
        return None
    rest = rest[colon.end() :]
    if isinstance(content, str):
        kind, body = "string", b'"' + content.encode() + b'"'
    else:
        bare = _BARE.match(rest)
        kind, body = _bare_kind(content), bare.group() if bare else b""
    behind = rest[len(body) :]
    if not kind or not rest.startswith(body) or behind.strip(b" ") != (b"}" if is_last else b""):
        return None
    before = text[: len(text) - len(rest)]
    return (
        _Cell(key, kind, before + b'"', b'"' + behind)
        if kind == "string"
        else _Cell(key, kind, before, behind)
    )


def _bare_kind(content: Any) -> str:
    if isinstance(content, bool):
        return "boolean"
    return "number" if isinstance(content, int | float) else ""


def _is_legal(content: pa.Array, kind: str, wanted: pa.DataType | None) -> bool:
    """Whether every content is JSON; strings are by what `Shape` has seen to already."""
    if kind == "string":
        return True
    if kind == "boolean":
        return bool(pc.all(pc.is_in(content, pa.array([b"true", b"false"], pa.binary()))).as_py())
    text = content.cast(pa.string())
    if wanted is not None and pa.types.is_integer(wanted):
        return _are_integers(text)
    return bool(pc.all(pc.match_substring_regex(text, _NUMBER)).as_py())


def _are_integers(text: pa.Array) -> bool:
    """Whether all are digits, but for signs (a second one does not survive the conversion), unpadded."""
    if not pc.all(pc.ascii_is_decimal(text)).as_py():
        text = pc.ascii_ltrim(text, characters="-")
        if not pc.all(pc.ascii_is_decimal(text)).as_py():
            return False
    zero = pc.starts_with(text, "0")
    return (
        not pc.any(zero).as_py() or not pc.any(pc.and_(zero, pc.greater(pc.binary_length(text), 1))).as_py()
    )


def _convert(content: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(wanted):
        return pc.equal(content, b"true")
    text = content.cast(pa.string())
    if pa.types.is_string(wanted):
        return text
    column = text.cast(wanted)
    if pa.types.is_floating(wanted) and pc.any(pc.is_inf(column)).as_py():
        raise pa.ArrowInvalid("a number too large for its type, which the JSON parser refuses")
    return column
