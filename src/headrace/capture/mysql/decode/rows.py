"""Rows of one table, as the binary log or a query has them, as changes with JSON. Pure."""

from collections.abc import Callable, Iterator, Sequence

import orjson

from headrace.capture.change import Change
from headrace.capture.mysql.decode.binlog import RowsEvent
from headrace.capture.mysql.decode.values import MALFORMED, Kind, Reader, text_encoder
from headrace.errors import CorruptionError

__all__ = ["LogRows", "TextRows"]

_NULL = b"null"


class _Names:
    """Names of columns as they stand in JSON, and which of them are the key's."""

    def __init__(self, table: str, columns: Sequence[str], key: Sequence[str]) -> None:
        self.table = table
        self.key = tuple(each for each in columns if each in key)
        self._names = [orjson.dumps(each) + b":" for each in columns]
        self._key_places = [place for place, each in enumerate(columns) if each in key]

    def json(self, values: Sequence[bytes]) -> bytes:
        members = [name + value for name, value in zip(self._names, values, strict=True)]
        return b"{" + b",".join(members) + b"}"

    def key_of(self, values: Sequence[bytes]) -> bytes | None:
        """The key as JSON, in the order of columns; None if the table has none."""
        if not self._key_places:
            return None
        return b"{" + b",".join([self._names[place] + values[place] for place in self._key_places]) + b"}"


class LogRows(_Names):
    """Reads the rows of events."""

    def __init__(self, table: str, columns: Sequence[tuple[str, Reader]], key: Sequence[str]) -> None:
        super().__init__(table, [name for name, _ in columns], key)
        self._readers = [reader for _, reader in columns]
        self._null_bytes = (len(columns) + 7) // 8

    def row(self, data: bytes, at: int) -> tuple[list[bytes], int]:
        """The JSON of each value of the row at a position, and where it ends."""
        begin = at
        at += self._null_bytes
        nulls = int.from_bytes(data[begin:at], "little")
        values = []
        try:
            for reader in self._readers:
                if nulls & 1:
                    values.append(_NULL)
                else:
                    value, at = reader(data, at)
                    values.append(value)
                nulls >>= 1
        except MALFORMED as error:
            raise CorruptionError(f"a row of {self.table} cannot be read: {error}") from None
        if at > len(data) or begin + self._null_bytes > len(data):
            raise CorruptionError(f"a row of {self.table} ends too early")
        return values, at

    def changes(self, rows: RowsEvent, source: Callable[[int], bytes]) -> Iterator[Change]:
        """The changes of an event; `source` says what is told of its row of a number."""
        if rows.columns != len(self._readers):
            raise CorruptionError(f"rows of {self.table} have {rows.columns} columns")
        at, number, end = rows.at, 0, len(rows.data)
        while at < end:
            changes, at = self.change(rows, at, source(number))
            yield from changes
            number += 1
            if not self._readers:
                break

    def change(self, rows: RowsEvent, at: int, said: bytes) -> tuple[Sequence[Change], int]:
        """What the row at a position has changed, which is two for another key; and where it ends."""
        values, at = self.row(rows.data, at)
        if rows.op == "c":
            return [Change(self.table, "c", self.key_of(values), None, self.json(values), said)], at
        if rows.op == "d":
            return [Change(self.table, "d", self.key_of(values), self.json(values), None, said)], at
        after, at = self.row(rows.data, at)
        return self._updated(values, after, said), at

    def _updated(self, before: Sequence[bytes], after: Sequence[bytes], said: bytes) -> Sequence[Change]:
        """One change; or, for another key, a delete and a create."""
        old_key, key = self.key_of(before), self.key_of(after)
        if old_key == key:
            return [Change(self.table, "u", key, self.json(before), self.json(after), said)]
        return [
            Change(self.table, "d", old_key, self.json(before), None, said),
            Change(self.table, "c", key, None, self.json(after), said),
        ]


class TextRows(_Names):
    """Reads the rows of queries."""

    def __init__(self, table: str, columns: Sequence[tuple[str, Kind, int]], key: Sequence[str]) -> None:
        super().__init__(table, [name for name, _, _ in columns], key)
        self._columns = [(name, text_encoder(kind, digits)) for name, kind, digits in columns]

    def row(self, texts: Sequence[bytes | None]) -> list[bytes]:
        """The JSON of each value."""
        return [
            _NULL if text is None else self._encoded(name, encode, text)
            for (name, encode), text in zip(self._columns, texts, strict=True)
        ]

    def _encoded(self, name: str, encode: Callable[[bytes], bytes], text: bytes) -> bytes:
        try:
            return encode(text)
        except MALFORMED as error:
            raise CorruptionError(f"a value of {self.table}.{name} cannot be read: {error}") from None
