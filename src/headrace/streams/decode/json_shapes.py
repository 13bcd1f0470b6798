"""JSON objects that all look alike, read as a table; no Spark, no I/O.

A stream's values are mostly written by one program, so that all have the same keys in
the same order, with the same spaces: only what stands between differs. One value gives
the shape, say

    {"user":"u00042","amount":7}     ->    {"user":" · ","amount": · }

and every value of a block is compared with it, text by text and content by content
(`headrace.kernels`), which is several times faster than a JSON parser. Nothing is taken on
trust. A value is of the shape if and only if the texts are there, each content is by
JSON's grammar what it is in the shape (a string, a number, a boolean), and nothing is left
over. Strings may hold no backslash and no control character, so that each means itself;
numbers in columns of integers are integers that fit the type.

Then the value is an object of exactly these keys and values, and what is read is what a
JSON parser would find. Other values are left to that parser (`json_values`); both give
the same for the same value.
"""

import re
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace import kernels
from headrace.kernels import JsonContents, JsonKind
from headrace.records import Places
from headrace.streams.decode.years import check_years

__all__ = ["JsonShape", "can_be_shaped"]

_SPACES = rb"[ \t\r\n]*"
_OPEN = re.compile(_SPACES + rb"\{")
_TEXT = rb'"[^"\\\x00-\x1f]*"'
_NUMBER = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_CONTENT = rb"(" + _TEXT + rb"|" + _NUMBER + rb"|true|false)"
_MEMBER = re.compile(_SPACES + rb"(" + _TEXT + rb")" + _SPACES + rb":" + _SPACES + _CONTENT + _SPACES)
_CLOSE = re.compile(rb"\}" + _SPACES)
_TOO_FINE = r"^(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\.\d{6})\d+"
_MAX_SAMPLE_BYTES = 1 << 16


def can_be_shaped(fields: pa.Schema) -> bool:
    """Whether all these fields are of types that a content can be turned into."""
    return len(fields) > 0 and all(_kind(field.type) is not None for field in fields)


def _kind(wanted: pa.DataType) -> JsonKind | None:
    """What must stand in the JSON for a column of this type."""
    if pa.types.is_string(wanted) or pa.types.is_date32(wanted):
        return JsonKind.TEXT
    if pa.types.is_timestamp(wanted) and wanted.tz is not None:
        return JsonKind.TEXT
    if pa.types.is_signed_integer(wanted):
        return JsonKind.INTEGER
    if wanted in (pa.float32(), pa.float64()):
        return JsonKind.NUMBER
    return JsonKind.BOOLEAN if pa.types.is_boolean(wanted) else None


@dataclass(frozen=True, slots=True)
class _Member:
    """One member of the object: its key, what its content is, and the text before that."""

    key: str
    kind: JsonKind
    before: bytes

    def cell(self, wanted: pa.DataType | None) -> kernels.JsonCell | None:
        """How to read it for a column of this type, or to pass over it; None if it is of another."""
        kind = self.kind if wanted is None else _kind(wanted)
        if kind is None or self.kind is not (JsonKind.NUMBER if kind is JsonKind.INTEGER else kind):
            return None
        bits = wanted.bit_width if kind is JsonKind.INTEGER and wanted is not None else 1
        least = -(1 << bits - 1)
        return kernels.JsonCell(self.before, kind, wanted is not None, least, -least - 1)


@dataclass(frozen=True, slots=True)
class JsonShape:
    """The text that values of one kind have in common: before each content, and behind the last."""

    members: tuple[_Member, ...]
    behind: bytes

    @classmethod
    def of(cls, value: bytes) -> Self | None:
        """The shape of a value; None if it is no flat object of strings, numbers and booleans."""
        opened = _OPEN.match(value) if len(value) <= _MAX_SAMPLE_BYTES else None
        if opened is None:
            return None
        members: list[_Member] = []
        taken, position = 0, opened.end()  # up to where the texts so far reach, and what was looked at
        while (found := _MEMBER.match(value, position)) is not None:
            key, content = found.groups()
            quote = content.startswith(b'"')
            kind = (
                JsonKind.TEXT
                if quote
                else JsonKind.BOOLEAN
                if content in (b"true", b"false")
                else JsonKind.NUMBER
            )
            try:
                members.append(_Member(key[1:-1].decode(), kind, value[taken : found.start(2) + quote]))
            except UnicodeDecodeError:
                return None
            taken, position = found.end(2) - quote, found.end()
            if value[position : position + 1] != b",":
                break
            position += 1
        keys = {member.key for member in members}
        if not members or len(keys) < len(members) or not _CLOSE.fullmatch(value, position):
            return None
        return cls(tuple(members), value[taken:])

    def read(
        self, values: Places, fields: pa.Schema
    ) -> tuple[npt.NDArray[np.bool_], tuple[pa.Array, ...]] | None:
        """Which values are of this shape, and of those a column for each field.

        None if values of this shape are not of the fields' types, or one cannot be converted.
        """
        types = {field.name: field.type for field in fields}
        cells = [member.cell(types.get(member.key)) for member in self.members]
        if any(cell is None for cell in cells):
            return None
        wanted = [cell for cell in cells if cell is not None]
        fitting, found = kernels.read_objects(
            values.octets, values.starts, values.lengths, wanted, self.behind
        )
        rows = int(np.count_nonzero(fitting))
        kept = None if rows == len(values) else pa.array(fitting)
        contents = {member.key: each for member, each in zip(self.members, found, strict=True)}
        try:
            columns = tuple(
                _column(contents[field.name], field.type, kept)
                if field.name in contents
                else pa.nulls(rows, field.type)
                for field in fields
            )
        except pa.ArrowInvalid:
            return None
        return fitting, columns


def _column(contents: JsonContents, wanted: pa.DataType, kept: pa.Array | None) -> pa.Array:
    column = _as_read(contents)
    if kept is not None:
        column = column.filter(kept)
    if contents.bounds is not None:
        column = column.cast(pa.string())  # which checks that it is UTF-8
    column = _times(column, wanted) if pa.types.is_timestamp(wanted) else column.cast(wanted)
    check_years(column)
    if pa.types.is_floating(wanted) and pc.any(pc.is_inf(column)).as_py():
        raise pa.ArrowInvalid("a number too large for its type, which the JSON parser refuses")
    return column


def _times(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Texts as timestamps; digits beyond microseconds, which some languages write, are cut off."""
    try:
        return texts.cast(wanted)
    except pa.ArrowInvalid:
        return pc.replace_substring_regex(texts, _TOO_FINE, r"\1").cast(wanted)


def _as_read(contents: JsonContents) -> pa.Array:
    """The contents as integers, bytes that are 0 or 1, or texts; without a copy."""
    if contents.numbers is not None:
        buffers = [None, pa.py_buffer(contents.numbers)]
        return pa.Array.from_buffers(pa.int64(), len(contents.numbers), buffers)
    assert contents.octets is not None, "the contents of this cell were not kept"
    if contents.bounds is None:
        buffers = [None, pa.py_buffer(contents.octets)]
        return pa.Array.from_buffers(pa.uint8(), len(contents.octets), buffers)
    octets = contents.octets[: contents.bounds[-1]]
    buffers = [None, pa.py_buffer(contents.bounds), pa.py_buffer(octets)]
    return pa.Array.from_buffers(pa.binary(), len(contents.bounds) - 1, buffers)
