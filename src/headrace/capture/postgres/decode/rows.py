"""Rows of one table, as the stream or a query has them, as changes with JSON. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

import orjson

from headrace.capture.change import Change, Item, Resnapshot
from headrace.capture.postgres.decode.pgoutput import UNCHANGED, Delete, Insert, Row, Unchanged, Update
from headrace.capture.postgres.decode.values import MALFORMED, Encoding, encoder
from headrace.errors import CorruptionError

__all__ = ["RowColumn", "RowWriter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowColumn:
    """A column in the order of a row."""

    name: str
    type_oid: int
    type_modifier: int
    encoding: Encoding


class RowWriter:
    """Writes rows of a table with these columns; `key` names those of its key, in any order."""

    def __init__(self, table: str, oid: int, columns: Sequence[RowColumn], key: Sequence[str]) -> None:
        self.table = table
        self.oid = oid
        self.columns = tuple(columns)
        self.key = tuple(each.name for each in columns if each.name in key)
        self._parts = [(orjson.dumps(each.name) + b":", encoder(each.encoding)) for each in columns]
        self._key_parts = [
            (place, name, encode)
            for place, (name, encode) in enumerate(self._parts)
            if columns[place].name in key
        ]

    @property
    def shape(self) -> str:
        """Differs where rows written before and after do not fit together."""
        said = [[each.name, each.type_oid, each.type_modifier] for each in self.columns]
        return f"{crc32(orjson.dumps([self.oid, said, self.key])):08x}"

    def key_of(self, row: Row) -> bytes | None:
        """The key as JSON, in the order of columns; None if the table has none."""
        if not self._key_parts:
            return None
        members = []
        for place, name, encode in self._key_parts:
            value = row[place]
            if isinstance(value, Unchanged):
                raise CorruptionError(f"PostgreSQL left out a value of the key of {self.table}")
            members.append(name + (b"null" if value is None else self._encoded(place, encode, value)))
        return b"{" + b",".join(members) + b"}"

    def json(self, row: Row, old: Row | None = None) -> tuple[bytes, tuple[str, ...]]:
        """The row, and the names of columns that are left out since nobody knows them.

        A value that was not sent again is taken from `old`, where that is whole.
        """
        parts: list[bytes] = [b"{"]
        missing, comma = [], b""
        for place, (name, encode) in enumerate(self._parts):
            value = row[place]
            if value is UNCHANGED and old is not None:
                value = old[place]
            if value is UNCHANGED:
                missing.append(self.columns[place].name)
                continue
            parts += (comma, name, b"null" if value is None else self._encoded(place, encode, value))
            comma = b","
        parts.append(b"}")
        return b"".join(parts), tuple(missing)

    def _encoded(self, place: int, encode: Callable[[bytes], bytes], value: bytes) -> bytes:
        try:
            return encode(value)
        except MALFORMED as error:
            column = self.columns[place]
            kind = column.encoding.kind.name.lower()
            raise CorruptionError(
                f"a value of {self.table}.{column.name} cannot be read as {kind}: {error}"
            ) from None

    def inserted(self, message: Insert, source: bytes) -> Change:
        after, _ = self.json(message.new)
        return Change(self.table, "c", self.key_of(message.new), None, after, source)

    def read(self, row: Row, source: bytes) -> Change:
        """A row of a snapshot."""
        after, _ = self.json(row)
        return Change(self.table, "r", self.key_of(row), None, after, source)

    def deleted(self, message: Delete, source: bytes) -> Change:
        before, _ = self.json(message.old)
        return Change(self.table, "d", self.key_of(message.old), before, None, source)

    def updated(self, message: Update, source: bytes) -> Iterator[Item]:
        """One change; or, for another key, a delete and a create."""
        old = message.old if message.old_is_whole else None
        after, missing = self.json(message.new, old)
        key = self.key_of(_filled(message.new, old))
        if message.old is None:
            yield Change(self.table, "u", key, None, after, source, missing)
            return
        before, _ = self.json(message.old)
        old_key = self.key_of(message.old)
        if old_key == key:
            yield Change(self.table, "u", key, before, after, source, missing)
            return
        yield Change(self.table, "d", old_key, before, None, source)
        yield Change(self.table, "c", key, None, after, source, missing)
        if missing:  # under the new key nobody has what was left out
            columns = ", ".join(missing)
            yield Resnapshot(self.table, f"a row got another key, and PostgreSQL did not send {columns}")


def _filled(row: Row, old: Row | None) -> Row:
    if old is None or not any(isinstance(each, Unchanged) for each in row):
        return row
    return tuple(
        before if isinstance(each, Unchanged) else each for each, before in zip(row, old, strict=True)
    )
