"""What a table map says of the rows behind it, with the names that `binlog_row_metadata=FULL` adds. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.capture.mysql.decode.charsets import BINARY, decoder
from headrace.capture.mysql.decode.column_types import type_code
from headrace.capture.mysql.decode.values import LoggedColumn
from headrace.capture.mysql.wire import Body

__all__ = ["TableMap", "read_table_map", "table_id"]

_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _COLUMN_NAME, _SET_VALUES, _ENUM_VALUES = range(1, 7)
_GEOMETRY_TYPE, _KEY, _KEY_WITH_PREFIX, _LABEL_CHARSET, _LABEL_COLUMN_CHARSET = range(7, 12)
_NUMERIC = (1, 2, 3, 4, 5, 8, 9, 13, 246)
_CHARACTER = (15, 249, 250, 251, 252, 253, 254, 140, 141)
_ENUM, _SET, _GEOMETRY = 247, 248, 255
_META_BYTES = {
    4: 1, 5: 1, 15: 2, 16: 2, 17: 1, 18: 1, 19: 1, 140: 1, 141: 2, 242: 1, 245: 1, 246: 2, 247: 2, 248: 2,
    249: 1, 250: 1, 251: 1, 252: 1, 253: 2, 254: 2, 255: 1,
}  # fmt: skip
_MOST_COLUMNS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMap:
    """A table as the rows of the log have it; `key` names its primary key in the order of columns.

    `is_named` is false where the server logged types only.
    """

    id: int
    schema: str
    name: str
    columns: tuple[LoggedColumn, ...]
    key: tuple[str, ...]
    is_named: bool

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"


def table_id(body: bytes) -> int:
    """The number by which events of rows refer to a table."""
    return int.from_bytes(body[:6], "little")


def read_table_map(body: bytes, charsets: Mapping[int, str], *, is_mariadb: bool) -> TableMap:
    """`charsets` are the character sets of collations; CorruptionError for what is no table map.

    MariaDB counts geometries among columns with a character set. Both count YEAR among numbers with a sign.
    """
    read = Body(body, "a table map")
    number = read.unsigned(6)
    read.take(2)
    schema = read.take(read.unsigned(1)).decode("utf-8", "replace")
    read.take(1)
    name = read.take(read.unsigned(1)).decode("utf-8", "replace")
    read.take(1)
    count = read.length()
    if count > _MOST_COLUMNS:
        raise read.wrong(f"{count} columns")
    codes = read.take(count)
    described = Body(read.counted(), "the types of a table map")
    metas = [described.unsigned(_META_BYTES.get(code, 0)) for code in codes]
    read.take((count + 7) // 8)
    columns = [LoggedColumn(name="", code=code, meta=meta) for code, meta in zip(codes, metas, strict=True)]
    fields = dict(_fields(read))
    details = _Details(columns, charsets, is_mariadb)
    details.apply(fields)
    return TableMap(
        id=number,
        schema=schema,
        name=name,
        columns=tuple(details.columns),
        key=details.key(fields),
        is_named=_COLUMN_NAME in fields,
    )


def _fields(read: Body) -> Iterator[tuple[int, bytes]]:
    while read.left():
        yield read.unsigned(1), read.counted()


class _Details:
    """The optional part of a table map, applied to columns."""

    def __init__(self, columns: list[LoggedColumn], charsets: Mapping[int, str], is_mariadb: bool) -> None:
        self.columns = columns
        self._charsets = charsets
        self._codes = [type_code(each.code, each.meta)[0] for each in columns]
        self._character = (*_CHARACTER, _GEOMETRY) if is_mariadb else _CHARACTER

    def apply(self, fields: Mapping[int, bytes]) -> None:
        self._names(fields.get(_COLUMN_NAME, b""))
        self._signs(fields.get(_SIGNEDNESS, b""))
        characters = self._places(lambda code: code in self._character)
        self._apply_charsets(characters, fields.get(_DEFAULT_CHARSET), fields.get(_COLUMN_CHARSET))
        labelled = self._places(lambda code: code in (_ENUM, _SET))
        self._apply_charsets(labelled, fields.get(_LABEL_CHARSET), fields.get(_LABEL_COLUMN_CHARSET))
        self._labels(self._places(lambda code: code == _ENUM), fields.get(_ENUM_VALUES, b""))
        self._labels(self._places(lambda code: code == _SET), fields.get(_SET_VALUES, b""))
        geometries = Body(fields.get(_GEOMETRY_TYPE, b""), "the geometries of a table map")
        for place in self._places(lambda code: code == _GEOMETRY):
            if geometries.left():
                self.columns[place] = replace(self.columns[place], geometry=geometries.length())

    def _places(self, chosen: Callable[[int], bool]) -> list[int]:
        return [place for place, code in enumerate(self._codes) if chosen(code)]

    def _names(self, said: bytes) -> None:
        read = Body(said, "the names of a table map")
        for place, column in enumerate(self.columns):
            if read.left():
                self.columns[place] = replace(column, name=read.counted().decode("utf-8", "replace"))

    def _signs(self, said: bytes) -> None:
        """One bit for each number, the first one highest."""
        for order, place in enumerate(self._places(lambda code: code in _NUMERIC)):
            byte = order // 8
            if byte < len(said) and said[byte] >> (7 - order % 8) & 1:
                self.columns[place] = replace(self.columns[place], is_unsigned=True)

    def _apply_charsets(self, places: Sequence[int], default: bytes | None, each: bytes | None) -> None:
        if default is not None:
            read = Body(default, "the character sets of a table map")
            usual, others = read.length(), {}
            while read.left():
                place = read.length()
                others[place] = read.length()
            collations = [others.get(order, usual) for order in range(len(places))]
        elif each is not None:
            read = Body(each, "the character sets of a table map")
            collations = [read.length() for _ in places]
        else:
            return
        for place, collation in zip(places, collations, strict=True):
            charset = self._charsets.get(collation, f"number {collation}")
            self.columns[place] = replace(self.columns[place], charset=charset)

    def _labels(self, places: Sequence[int], said: bytes) -> None:
        read = Body(said, "the labels of a table map")
        for place in places:
            if not read.left():
                return
            column = self.columns[place]
            decode = decoder(column.charset) or (lambda data: data.decode("utf-8", "replace"))
            if column.charset == BINARY:
                decode = lambda data: data.decode("utf-8", "replace")  # noqa: E731
            labels = tuple(decode(read.counted()) for _ in range(read.length()))
            self.columns[place] = replace(column, labels=labels)

    def key(self, fields: Mapping[int, bytes]) -> tuple[str, ...]:
        has_prefix = _KEY_WITH_PREFIX in fields
        read = Body(fields.get(_KEY_WITH_PREFIX if has_prefix else _KEY, b""), "the key of a table map")
        places = set()
        while read.left():
            places.add(read.length())
            if has_prefix:
                read.length()
        if any(place >= len(self.columns) for place in places):
            raise read.wrong("it names a column that is not there")
        return tuple(each.name for place, each in enumerate(self.columns) if place in places)
