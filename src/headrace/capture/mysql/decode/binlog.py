"""Events of the binary log: their heads, checksums and contents, without I/O.

Every event is a head of 19 bytes and a body; with a checksum, four bytes behind that. A
transaction is a GTID, its statements and rows, and an XID or a COMMIT; a DDL statement is one by
itself. MySQL may pack a transaction into one compressed event, MariaDB may compress rows.
"""

import struct
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import cramjam

from headrace.capture.mysql.wire import Body
from headrace.errors import CorruptionError

__all__ = [
    "BinlogEvent",
    "EventReader",
    "EventType",
    "Gtid",
    "Query",
    "Rotate",
    "RowsEvent",
    "read_gtid",
    "read_payload",
    "read_query",
    "read_rotate",
    "read_rows",
]

_HEAD = struct.Struct("<IBIIIH")
_ALGORITHM_FROM_END = 5
_CRC32 = 1
_CHECKSUM_BYTES = 4
_ARTIFICIAL = 0x20
_ZSTD, _PLAIN = 0, 255
_MOST_INFLATED_BYTES = 1 << 30


class EventType(IntEnum):
    """The events that are looked at."""

    QUERY = 2
    ROTATE = 4
    FORMAT_DESCRIPTION = 15
    XID = 16
    TABLE_MAP = 19
    WRITE_ROWS_1 = 23
    UPDATE_ROWS_1 = 24
    DELETE_ROWS_1 = 25
    HEARTBEAT = 27
    WRITE_ROWS_2 = 30
    UPDATE_ROWS_2 = 31
    DELETE_ROWS_2 = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_2 = 41
    TAGGED_GTID = 42
    MARIADB_GTID = 162
    MARIADB_ENCRYPTION = 164
    MARIADB_QUERY_COMPRESSED = 165
    MARIADB_WRITE_ROWS_1_COMPRESSED = 166
    MARIADB_UPDATE_ROWS_1_COMPRESSED = 167
    MARIADB_DELETE_ROWS_1_COMPRESSED = 168
    MARIADB_WRITE_ROWS_COMPRESSED = 169
    MARIADB_UPDATE_ROWS_COMPRESSED = 170
    MARIADB_DELETE_ROWS_COMPRESSED = 171


_OPS = {
    EventType.WRITE_ROWS_1: "c", EventType.UPDATE_ROWS_1: "u", EventType.DELETE_ROWS_1: "d",
    EventType.WRITE_ROWS_2: "c", EventType.UPDATE_ROWS_2: "u", EventType.DELETE_ROWS_2: "d",
    EventType.MARIADB_WRITE_ROWS_1_COMPRESSED: "c", EventType.MARIADB_UPDATE_ROWS_1_COMPRESSED: "u",
    EventType.MARIADB_DELETE_ROWS_1_COMPRESSED: "d", EventType.MARIADB_WRITE_ROWS_COMPRESSED: "c",
    EventType.MARIADB_UPDATE_ROWS_COMPRESSED: "u", EventType.MARIADB_DELETE_ROWS_COMPRESSED: "d",
}  # fmt: skip
ROW_EVENTS = frozenset(_OPS)
_SECOND_VERSION = (*range(30, 33), *range(169, 172))
_COMPRESSED = range(165, 172)


class BinlogEvent(NamedTuple):
    """An event without its checksum; `log_pos` is where it ends in its file, in 32 bits."""

    type: int
    timestamp: int
    server_id: int
    log_pos: int
    is_artificial: bool
    size: int
    body: bytes


class EventReader:
    """Reads heads and checks checksums; what a file has is said by its first event."""

    def __init__(self, *, has_checksums: bool) -> None:
        self.has_checksums = has_checksums

    def read(self, data: bytes) -> BinlogEvent:
        """The event; CorruptionError if it is torn or its checksum is wrong."""
        if len(data) < _HEAD.size:
            raise CorruptionError(f"an event of MySQL has {len(data)} bytes")
        timestamp, kind, server_id, size, log_pos, flags = _HEAD.unpack_from(data)
        if size != len(data):
            raise CorruptionError(f"an event of MySQL says that it has {size} bytes, and has {len(data)}")
        end = len(data)
        if kind == EventType.FORMAT_DESCRIPTION:
            self._described(data)
            end -= _CHECKSUM_BYTES
        elif self.has_checksums:
            end -= _CHECKSUM_BYTES
            if end < _HEAD.size or zlib.crc32(memoryview(data)[:end]) != int.from_bytes(data[end:], "little"):
                raise CorruptionError(f"an event of MySQL that ends at {log_pos} has a wrong checksum")
        is_artificial = bool(flags & _ARTIFICIAL)
        return BinlogEvent(kind, timestamp, server_id, log_pos, is_artificial, size, data[_HEAD.size : end])

    def _described(self, data: bytes) -> None:
        if len(data) < _HEAD.size + 57 + _ALGORITHM_FROM_END:
            raise CorruptionError("the description of a binary log's format ends too early")
        self.has_checksums = data[-_ALGORITHM_FROM_END] == _CRC32


@dataclass(frozen=True, slots=True)
class Rotate:
    """The file that comes next, and where reading goes on in it."""

    file: str
    position: int


def read_rotate(body: bytes) -> Rotate:
    read = Body(body, "a change of files")
    position = read.unsigned(8)
    return Rotate(read.rest().decode("utf-8", "replace"), position)


@dataclass(frozen=True, slots=True)
class Gtid:
    """The beginning of a transaction: `origin` is a server (MySQL) or a domain (MariaDB)."""

    origin: str
    server_id: int
    number: int
    committed_us: int
    is_standalone: bool = False
    xa: bytes = b""
    is_prepared: bool = False

    def __str__(self) -> str:
        if "-" in self.origin:
            return f"{self.origin}:{self.number}"
        return f"{self.origin}-{self.server_id}-{self.number}"


_STANDALONE, _GROUP_COMMIT, _PREPARED_XA, _COMPLETED_XA = 1, 2, 64, 128
_TYPED, _HAS_ORIGINAL = 2, 1 << 55


def read_gtid(event: BinlogEvent) -> Gtid:
    """A GTID of MySQL or MariaDB."""
    read = Body(event.body, "a GTID")
    if event.type == EventType.MARIADB_GTID:
        number, domain, flags = read.unsigned(8), read.unsigned(4), read.unsigned(1)
        xa = b""
        if flags & (_PREPARED_XA | _COMPLETED_XA):
            if flags & _GROUP_COMMIT:
                read.take(8)
            xa = read.rest()
        return Gtid(
            str(domain), event.server_id, number, event.timestamp * 1_000_000,
            bool(flags & _STANDALONE), xa, bool(flags & _PREPARED_XA),
        )  # fmt: skip
    read.take(1)
    origin = str(uuid.UUID(bytes=read.take(16)))
    number = read.unsigned(8)
    committed_us = event.timestamp * 1_000_000
    if read.left() >= 24 and read.unsigned(1) == _TYPED:
        read.take(16)
        committed_us = read.unsigned(7) & ~_HAS_ORIGINAL or committed_us
    return Gtid(origin, event.server_id, number, committed_us)


@dataclass(frozen=True, slots=True)
class Query:
    """A statement as it was logged, in its default schema."""

    schema: str
    text: str


def read_query(event: BinlogEvent) -> Query:
    read = Body(event.body, "a statement")
    read.take(8)
    schema_bytes = read.unsigned(1)
    read.take(2)
    read.take(read.unsigned(2))
    schema = read.take(schema_bytes).decode("utf-8", "replace")
    read.take(1)
    text = read.rest()
    if event.type == EventType.MARIADB_QUERY_COMPRESSED:
        text = _inflated(text)
    return Query(schema, text.decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class RowsEvent:
    """An event with rows: their bytes begin at `at`; `is_whole` says that every column is there."""

    table_id: int
    op: str
    columns: int
    is_whole: bool
    data: bytes
    at: int


def read_rows(event: BinlogEvent) -> RowsEvent:
    read = Body(event.body, "an event with rows")
    table = read.unsigned(6)
    read.take(2)
    if event.type in _SECOND_VERSION:
        read.take(read.unsigned(2) - 2)
    count = read.length()
    op = _OPS[EventType(event.type)]
    width = (count + 7) // 8
    maps = [read.take(width) for _ in range(2 if op == "u" else 1)]
    every = (1 << count) - 1
    is_whole = all(int.from_bytes(each, "little") & every == every for each in maps)
    data, at = event.body, read.at
    if event.type in _COMPRESSED:
        data, at = _inflated(read.rest()), 0
    return RowsEvent(table, op, count, is_whole, data, at)


def _inflated(data: bytes) -> bytes:
    """MariaDB's compression of events: how long the length is, the length, and zlib."""
    if not data or data[0] & 0x70:
        raise CorruptionError("an event of MariaDB is compressed in an unknown way")
    size = data[0] & 7
    length = int.from_bytes(data[1 : 1 + size], "big")
    try:
        return zlib.decompressobj().decompress(data[1 + size :], min(length, _MOST_INFLATED_BYTES))
    except zlib.error as error:
        raise CorruptionError(f"a compressed event of MariaDB cannot be read: {error}") from None


def read_payload(body: bytes) -> Iterator[BinlogEvent]:
    """The events of a transaction that MySQL has packed into one."""
    read = Body(body, "a compressed transaction")
    fields = {}
    while (field := read.length()) != 0:
        fields[field] = Body(read.counted(), "a compressed transaction").length()
    packed, algorithm = read.rest(), fields.get(2, _ZSTD)
    if algorithm == _ZSTD:
        try:
            packed = bytes(cramjam.zstd.decompress(packed))
        except cramjam.DecompressionError as error:
            raise CorruptionError(f"a compressed transaction cannot be read: {error}") from None
    elif algorithm != _PLAIN:
        raise CorruptionError(f"a transaction is compressed in an unknown way ({algorithm})")
    inner, at = EventReader(has_checksums=False), 0
    while at < len(packed):
        size = int.from_bytes(packed[at + 9 : at + 13], "little")
        if size < _HEAD.size:
            raise CorruptionError("an event of a compressed transaction has no size")
        yield inner.read(packed[at : at + size])
        at += size
