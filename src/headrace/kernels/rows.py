"""Changes of PostgreSQL's stream, and rows that it answers, as JSON in Debezium's envelope.

Only what is plain: the caller looks at a message itself where these stop, and goes on behind it.
"""

import ctypes
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from mmap import mmap
from typing import NamedTuple

from headrace.kernels.shared_library import INT, POINTER, declared

__all__ = [
    "RECORD_NUMBERS",
    "Encoded",
    "FoundMessages",
    "RowColumnLayout",
    "RowEncoder",
    "RowTable",
    "RowTables",
    "RowTexts",
    "Stop",
    "UsedTable",
    "find_answers",
]

# Of each record: table, letter, start and length of key (-1: none) and value, and how much later it is.
RECORD_NUMBERS = 7
MOST_COLUMNS = 1600

_LARGEST_ARRAY = 16 << 20

_from_buffer = ctypes.c_char.from_buffer


class Stop(IntEnum):
    """Why encoding ended."""

    ALL_DONE = 0
    OUT_OF_ROOM = 1
    NOT_PLAIN = 2


class _Text(ctypes.Structure):
    _fields_ = (("at", ctypes.c_char_p), ("length", INT))

    @classmethod
    def of(cls, text: bytes) -> "_Text":
        return cls(text, len(text))


class _Column(ctypes.Structure):
    _fields_ = (
        ("name", _Text),
        *((name, INT) for name in ("kind", "in_key", "size", "digits")),
        ("labels", POINTER),
        ("label_count", INT),
    )


class _Table(ctypes.Structure):
    _fields_ = (
        ("oid", INT),
        ("columns", POINTER),
        ("column_count", INT),
        ("name_bytes", INT),
        ("source", _Text),
        ("order", INT),
    )


class _Frame(ctypes.Structure):
    _fields_ = (
        *((name, _Text) for name in ("between_places", "before_op", "behind_op", "between_orders", "end")),
        ("total", INT),
    )


class _Outcome(ctypes.Structure):
    _fields_ = tuple((name, INT) for name in ("stop", "count", "out_bytes", "last_place"))


@cache
def _library() -> ctypes.CDLL:
    return declared(
        {
            "find_changes": [POINTER, INT, INT, POINTER, INT, POINTER, POINTER],
            "encode_changes": [
                *(POINTER, INT, INT, POINTER, INT, POINTER),
                *(POINTER, INT, POINTER, INT, POINTER),
            ],
            "find_answers": [POINTER, INT, INT, POINTER],
            "encode_answers": [POINTER, INT, INT, POINTER, POINTER, INT, POINTER, INT, POINTER],
        }
    )


class RowColumnLayout(NamedTuple):
    """A column: its name as it stands in an object (`"id":`), and how its values are encoded."""

    name: bytes
    kind: int
    in_key: bool


class RowTable:
    """A table as rows of it are encoded."""

    def __init__(self, name: str, oid: int, columns: Sequence[RowColumnLayout]) -> None:
        assert len(columns) <= MOST_COLUMNS
        self.name, self.oid = name, oid
        self._columns = (_Column * len(columns))(
            *(_Column(_Text.of(each.name), each.kind, each.in_key) for each in columns)
        )
        self._name_bytes = sum(len(each.name) for each in columns)

    def _as_told(self) -> _Table:
        return _Table(
            oid=self.oid,
            columns=ctypes.addressof(self._columns),
            column_count=len(self._columns),
            name_bytes=self._name_bytes,
        )


class RowTables:
    """Tables whose rows are encoded, by oid."""

    def __init__(self, tables: Sequence[RowTable]) -> None:
        self.tables = sorted(tables, key=lambda each: each.oid)
        self.names = [each.name for each in self.tables]
        self._told = (_Table * len(tables))(*(each._as_told() for each in self.tables))

    def find(self, data: bytearray | memoryview, begin: int) -> "FoundMessages":
        """The messages of `data` from `begin` on that are rows of these tables."""
        counts, outcome = array("q", bytes(8 * len(self.tables))), _Outcome()
        end = _library().find_changes(
            ctypes.byref(_from_buffer(data)),
            begin,
            len(data),
            self._told,
            len(self.tables),
            counts.buffer_info()[0],
            ctypes.byref(outcome),
        )
        tables = tuple(number for number, count in enumerate(counts) if count)
        return FoundMessages(int(end), outcome.count, outcome.last_place, tables)


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """Where messages end, how many they are, and where the last one lies in the log.

    `tables` are the numbers of those that they are of, in `RowTables.tables`.
    """

    end: int
    count: int
    last_place: int
    tables: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTexts:
    """What stands between the numbers of a change, which are, in this order:

    its place in the log, the same once more, its letter, its order in the transaction, and the
    order among those of its table.
    """

    between_places: bytes
    before_op: bytes
    behind_op: bytes
    between_orders: bytes
    end: bytes


class UsedTable(NamedTuple):
    """A table by its number, what stands before the first number of its changes, and how many it has had."""

    number: int
    source: bytes
    order: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """How far the data is done, how many records were written, and why not more."""

    end: int
    count: int
    stop: Stop


class RowEncoder:
    """Memory for records, written over by every call: `octets` and, RECORD_NUMBERS for each, `numbers`."""

    def __init__(self, *, octets: int = 4 << 20, records: int = 16_384) -> None:
        # Memory that is never written to is only an address: a large row is given room for the worst case.
        self.octets: bytearray | memoryview = (
            bytearray(octets) if octets <= _LARGEST_ARRAY else memoryview(mmap(-1, octets))
        )
        self.numbers = array("q", bytes(8 * RECORD_NUMBERS * records))
        self._outcome = _Outcome()
        self._room = (
            ctypes.byref(_from_buffer(self.octets)),
            octets,
            self.numbers.buffer_info()[0],
            records,
            ctypes.byref(self._outcome),
        )

    def encode_changes(
        self,
        data: bytes | memoryview,
        begin: int,
        tables: RowTables,
        used: Sequence[UsedTable],
        texts: RowTexts,
        total: int,
    ) -> "tuple[Encoded, list[int]]":
        """Encodes what `RowTables.find` found, from `begin` on, as far as it is plain.

        `total` is how many changes the transaction has had before. With what was encoded, the order
        of the last change of each table in `used`.
        """
        told, held = tables._told, _held(data)
        for number, source, order in used:
            table = told[number]
            table.source, table.order = _Text.of(source), order
        frame = _Frame(
            *(
                _Text.of(each)
                for each in (
                    texts.between_places,
                    texts.before_op,
                    texts.behind_op,
                    texts.between_orders,
                    texts.end,
                )
            ),
            total,
        )
        end = _library().encode_changes(
            held,
            begin,
            len(data),
            told,
            len(told),
            ctypes.byref(frame),
            *self._room,
        )
        return self._encoded(end), [told[each.number].order for each in used]

    def encode_answers(self, data: bytes | memoryview, begin: int, table: RowTable, behind: bytes) -> Encoded:
        """Encodes DataRow messages of a table from `begin` on; `behind` stands behind each row."""
        told, held = table._as_told(), _held(data)
        told.source = _Text.of(behind)
        end = _library().encode_answers(
            held,
            begin,
            len(data),
            ctypes.byref(told),
            *self._room,
        )
        return self._encoded(end)

    def _encoded(self, end: int) -> Encoded:
        return Encoded(int(end), self._outcome.count, Stop(self._outcome.stop))


def find_answers(data: bytearray | memoryview, begin: int) -> FoundMessages:
    """The DataRow messages of `data` from `begin` on; `last_place` is where the last one begins."""
    outcome = _Outcome()
    end = _library().find_answers(ctypes.byref(_from_buffer(data)), begin, len(data), ctypes.byref(outcome))
    return FoundMessages(int(end), outcome.count, outcome.last_place, ())


def _held(data: bytes | memoryview) -> "bytes | ctypes._CArgObject":
    """As a function of the library takes it; a view must be one of writable bytes."""
    return data if isinstance(data, bytes) else ctypes.byref(_from_buffer(data))
