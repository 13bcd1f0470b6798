"""Rows of MySQL's and MariaDB's binary log, and those that they answer, as JSON in Debezium's envelope.

Only what is plain: the caller looks at a row itself where this stops, and goes on behind it.
"""

import ctypes
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from headrace.kernels.rows import MOST_COLUMNS, Encoded, RowEncoder, _Column, _held, _Table, _Text
from headrace.kernels.shared_library import INT, POINTER, declared

__all__ = [
    "LogColumnLayout",
    "LogEvent",
    "LogKind",
    "LogTable",
    "TextKind",
    "encode_logged",
    "encode_texts",
]

_NUMBER_BYTES = 80  # more than any number, moment or word is long in JSON


class LogKind(IntEnum):
    """What values of a column are in the log, and in JSON."""

    SIGNED = 0
    UNSIGNED = 1
    YEAR = 2
    FLOAT = 3
    DOUBLE = 4
    DECIMAL = 5
    BIT = 6
    BITS = 7
    DATE = 8
    TIME = 9
    DATETIME = 10
    TIMESTAMP = 11
    ENUM = 12
    SET = 13
    UTF8 = 14
    ASCII = 15
    LETTERS = 16
    BYTES = 17


class TextKind(IntEnum):
    """What values of a column are in the answer of a query."""

    INTEGER = 0
    FLOAT = 1
    DOUBLE = 2
    DECIMAL = 3
    BIT = 4
    BITS = 5
    DATE = 6
    TIME = 7
    DATETIME = 8
    TIMESTAMP = 9
    UTF8 = 10
    ASCII = 11
    BYTES = 12


class LogColumnLayout(NamedTuple):
    """A column: its name as it stands in an object (`"id":`), and how its values are encoded.

    `size` is how many bytes a value has; or, of texts and bytes, how many its length has, which stands
    before it. `digits` are those of a second's fraction; of a decimal, all of them times 256 and those
    behind the point; of bytes, how many there are at least. `labels` are as they stand between quotes; of
    a text with a byte for each letter, they are the letters of the bytes from 128 on. In answers, nothing but
    the digits of a second's fraction matters.
    """

    name: bytes
    kind: LogKind | TextKind
    in_key: bool
    size: int = 0
    digits: int = 0
    labels: Sequence[bytes] = ()

    @property
    def _most_bytes(self) -> int:
        """What a value may have in JSON, besides six bytes for each of its own."""
        labels = sum(len(each) + 1 for each in self.labels)
        padding = 2 * self.digits if self.kind is LogKind.BYTES else 0
        return len(self.name) + _NUMBER_BYTES + labels + padding


class LogTable:
    """A table as rows of it are encoded."""

    def __init__(self, columns: Sequence[LogColumnLayout]) -> None:
        assert 0 < len(columns) <= MOST_COLUMNS
        self._labels = [(_Text * len(each.labels))(*map(_Text.of, each.labels)) for each in columns]
        self._columns = (_Column * len(columns))(
            *(
                _Column(
                    name=_Text.of(each.name),
                    kind=each.kind,
                    in_key=each.in_key,
                    size=each.size,
                    digits=each.digits,
                    labels=ctypes.addressof(labels),
                    label_count=len(labels),
                )
                for each, labels in zip(columns, self._labels, strict=True)
            )
        )
        self._told = _Table(
            columns=ctypes.addressof(self._columns),
            column_count=len(columns),
            name_bytes=sum(each._most_bytes for each in columns),
        )


class _Event(ctypes.Structure):
    _fields_ = (
        ("op", INT),
        *((name, _Text) for name in ("behind_row", "between_orders", "end")),
        ("row", INT),
        ("total", INT),
    )


@dataclass(slots=True, kw_only=True)
class LogEvent:
    """What stands between the numbers of a change, and these, which move on with what is encoded:

    `row` is the number of the next row in the event, `total` and `order` are those of the last change in the
    transaction and among those of its table. `source` is what stands between a row and its number.
    """

    op: str
    source: bytes
    behind_row: bytes
    between_orders: bytes
    end: bytes
    row: int = 0
    total: int = 0
    order: int = 0


@cache
def _library() -> ctypes.CDLL:
    return declared(
        {
            "encode_logged": [POINTER, INT, INT, POINTER, POINTER, POINTER, INT, POINTER, INT, POINTER],
            "encode_texts": [POINTER, POINTER, INT, INT, POINTER, POINTER, INT, POINTER, INT, POINTER],
        }
    )


def encode_logged(
    encoder: RowEncoder, data: bytes | memoryview, begin: int, table: LogTable, event: LogEvent
) -> Encoded:
    """Encodes the rows of an event from `begin` on, as far as they are plain."""
    told, held = table._told, _held(data)
    told.source, told.order = _Text.of(event.source), event.order
    texts = (_Text.of(each) for each in (event.behind_row, event.between_orders, event.end))
    said = _Event(ord(event.op), *texts, event.row, event.total)
    end = _library().encode_logged(
        held, begin, len(data), ctypes.byref(told), ctypes.byref(said), *encoder._room
    )
    event.row, event.total, event.order = said.row, said.total, told.order
    return encoder._encoded(end)


def encode_texts(
    encoder: RowEncoder,
    data: bytes | memoryview,
    ends: "array[int]",
    first: int,
    table: LogTable,
    behind: bytes,
) -> Encoded:
    """Encodes rows that a query has answered, as far as they are plain; its `end` is the number of a row.

    Row n ends at `ends[n]`, where the next one begins; `behind` stands behind each.
    """
    assert not ends or ends[-1] <= len(data)
    told, held = table._told, _held(data)
    told.source = _Text.of(behind)
    end = _library().encode_texts(
        held, ends.buffer_info()[0], first, len(ends), ctypes.byref(told), *encoder._room
    )
    return encoder._encoded(end)
