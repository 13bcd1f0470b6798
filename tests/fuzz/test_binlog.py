"""Whatever a server sends, reading it ends with a change or a CorruptionError, in little memory.

`HEADRACE_FUZZ_SEED` repeats a campaign; a seed is printed with every run.
"""

import os
import random
import struct
import tracemalloc
import zlib

import pytest

from headrace.capture.mysql.decode.binlog import (
    ROW_EVENTS,
    BinlogEvent,
    EventReader,
    EventType,
    read_gtid,
    read_payload,
    read_query,
    read_rotate,
    read_rows,
)
from headrace.capture.mysql.decode.json_binary import json_text
from headrace.capture.mysql.decode.rows import LogRows
from headrace.capture.mysql.decode.table_map import read_table_map
from headrace.capture.mysql.decode.values import MALFORMED, log_reader
from headrace.capture.mysql.wire.protocol import Packets, lenenc, read_error, read_greeting, read_row
from headrace.errors import CorruptionError

MIB = 1 << 20
CHARSETS = {45: "utf8mb4", 8: "latin1", 63: "binary"}


def event(kind: int, body: bytes, *, position: int = 500) -> bytes:
    size = 19 + len(body) + 4
    head = struct.pack("<IBIIIH", 1_763_452_800, kind, 1, size, position, 0)
    return head + body + struct.pack("<I", zlib.crc32(head + body))


def field(number: int, contents: bytes) -> bytes:
    return bytes([number]) + lenenc(len(contents)) + contents


COLUMNS = (
    (3, b"", "id"), (15, struct.pack("<H", 400), "v"), (246, b"\x09\x02", "n"), (18, b"\x06", "at"),
    (254, b"\xf7\x01", "e"), (252, b"\x02", "b"), (245, b"\x04", "j"), (16, b"\x01\x01", "bits"),
)  # fmt: skip
NAMES = b"".join(bytes([len(name)]) + name.encode() for _, _, name in COLUMNS)
TABLE_MAP = event(
    EventType.TABLE_MAP,
    struct.pack("<IHH", 77, 0, 1) + b"\x04shop\0" + b"\x01t\0" + bytes([len(COLUMNS)])
    + bytes(code for code, _, _ in COLUMNS) + lenenc(sum(len(meta) for _, meta, _ in COLUMNS))
    + b"".join(meta for _, meta, _ in COLUMNS) + b"\xfe"
    + field(1, b"\x80") + field(2, bytes([45, 1, 63])) + field(4, NAMES) + field(6, b"\x02\x01a\x01b")
    + field(8, b"\0") + field(10, bytes([45])),
)  # fmt: skip
JSON = (  # {"a": 1, "b": [true, -1]}
    b"\x00\x02\x00\x1e\x00\x12\x00\x01\x00\x13\x00\x01\x00\x05\x01\x00\x02\x14\x00ab"
    b"\x02\x00\x0a\x00\x04\x01\x00\x05\xff\xff"
)
ROW = (
    b"\0" + struct.pack("<I", 7) + struct.pack("<H", 3) + b"one" + b"\x80\x00\x00\x01\x19"
    + (0x8000000000 + ((2026 * 13 + 1) << 22) + (2 << 17) + (3 << 12)).to_bytes(5, "big") + b"\0\0\1"
    + b"\x02" + b"\x02\x00\xff\x00" + struct.pack("<I", len(JSON)) + JSON + b"\x01\x05"
)  # fmt: skip
ROWS_HEAD = struct.pack("<IHH", 77, 0, 1)
QUERY = struct.pack("<IIBHH", 1, 0, 4, 0, 0) + b"shop\0ALTER TABLE t ADD c int"
WELL_FORMED = [
    event(
        EventType.FORMAT_DESCRIPTION,
        b"\x04\0" + b"9.7.4".ljust(50, b"\0") + b"\0" * 4 + b"\x13" + b"\0" * 42 + b"\1",
    ),
    event(EventType.ROTATE, struct.pack("<Q", 4) + b"binlog.000007"),
    event(
        EventType.GTID,
        b"\0" + bytes(range(16)) + struct.pack("<Q", 9) + b"\2" + b"\0" * 16 + b"\1" * 7 + b"\0",
    ),
    event(EventType.MARIADB_GTID, struct.pack("<QIB", 9, 0, 0) + b"\0" * 6),
    event(EventType.QUERY, QUERY),
    TABLE_MAP,
    event(EventType.WRITE_ROWS_1, ROWS_HEAD + bytes([len(COLUMNS)]) + b"\xff" + ROW + ROW),
    event(EventType.UPDATE_ROWS_2, ROWS_HEAD + b"\2\0" + bytes([len(COLUMNS)]) + b"\xff\xff" + ROW + ROW),
    event(EventType.DELETE_ROWS_1, ROWS_HEAD + bytes([len(COLUMNS)]) + b"\xff" + ROW),
    event(
        EventType.MARIADB_WRITE_ROWS_1_COMPRESSED,
        ROWS_HEAD + bytes([len(COLUMNS)]) + b"\xff" + b"\x81" + bytes([len(ROW)]) + zlib.compress(ROW),
    ),
    event(EventType.XID, struct.pack("<Q", 3)),
]  # fmt: skip


class Reading:
    """Reads events one after the other, as a session does."""

    def __init__(self) -> None:
        self._events = EventReader(has_checksums=True)
        self._rows: LogRows | None = None
        self.changes = 0

    def read(self, data: bytes) -> None:
        found = self._events.read(data)
        if found.type == EventType.ROTATE:
            read_rotate(found.body)
        elif found.type in (EventType.GTID, EventType.MARIADB_GTID):
            str(read_gtid(found))
        elif found.type in (EventType.QUERY, EventType.MARIADB_QUERY_COMPRESSED):
            read_query(found)
        elif found.type == EventType.TRANSACTION_PAYLOAD:
            for each in read_payload(found.body):
                self._of_payload(each)
        elif found.type == EventType.TABLE_MAP:
            self._describe(found)
        elif found.type in ROW_EVENTS and self._rows is not None:
            self._take(found)

    def _of_payload(self, found: BinlogEvent) -> None:
        if found.type in ROW_EVENTS and self._rows is not None:
            self._take(found)

    def _describe(self, found: BinlogEvent) -> None:
        described = read_table_map(found.body, CHARSETS, is_mariadb=False)
        try:
            readers = [(each.name, log_reader(each)) for each in described.columns]
        except MALFORMED:
            self._rows = None
            return
        self._rows = LogRows(described.full_name, readers, described.key)

    def _take(self, found: BinlogEvent) -> None:
        assert self._rows is not None
        rows = read_rows(found)
        self.changes += sum(1 for _ in self._rows.changes(rows, lambda _: b""))


def resealed(data: bytes) -> bytes:
    """With the size and the checksum that it should have, so that what is inside is looked at."""
    if len(data) < 23:
        return data
    whole = data[:9] + struct.pack("<I", len(data)) + data[13:-4]
    return whole + struct.pack("<I", zlib.crc32(whole))


def mutated(chance: random.Random) -> list[bytes]:
    """A log that is cut, reordered, doubled, or has bytes and lengths changed."""
    events = list(WELL_FORMED)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(events))
        match chance.randrange(6):
            case 0:
                events[at] = resealed(events[at][: chance.randrange(len(events[at]) + 1)])
            case 1:
                chance.shuffle(events)
            case 2:
                events.insert(at, chance.choice(events))
            case 3:
                del events[at]
                events = events or [b""]
            case 4:
                changed = bytearray(events[at] or b"\0")
                changed[chance.randrange(len(changed))] = chance.randrange(256)
                events[at] = resealed(bytes(changed)) if chance.random() < 0.8 else bytes(changed)
            case _:
                changed = bytearray(events[at])
                place = chance.randrange(len(changed) + 1)
                changed[place : place + 4] = struct.pack("<I", chance.choice((2**32 - 1, 2**31, 2**16, 0)))
                events[at] = resealed(bytes(changed))
    return events


def attempt(chance: random.Random) -> bool:
    """Whether one case was read; anything but a CorruptionError passes through."""
    events = mutated(chance)
    noise = chance.randbytes(chance.randrange(60))
    changed = bytearray(JSON)
    changed[chance.randrange(len(changed))] = chance.randrange(256)
    attempts = [
        lambda: _read_all(events),
        lambda: read_row(noise),
        lambda: read_error(b"\xff" + noise),
        lambda: read_greeting(b"\x0a" + noise),
        lambda: json_text(bytes(changed)),
        lambda: json_text(noise),
        lambda: list(read_payload(noise)),
        lambda: _cut(noise),
    ]
    refused = 0
    for each in attempts:
        try:
            each()
        except CorruptionError:
            refused += 1
    return refused == 0


def _read_all(events: list[bytes]) -> int:
    reading = Reading()
    for each in events:
        reading.read(each)
    return reading.changes


def _cut(noise: bytes) -> None:
    packets = Packets(1 << 20)
    packets.feed(noise)
    while packets.next() is not None:
        pass


def campaign(cases: int) -> None:
    seed = int(os.environ.get("HEADRACE_FUZZ_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HEADRACE_FUZZ_SEED={seed}")
    chance = random.Random(seed)
    tracemalloc.start()
    try:
        read = sum(attempt(chance) for _ in range(cases // 10))
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        read += sum(attempt(chance) for _ in range(cases - cases // 10))
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - kept < MIB // 2, "memory grows with what cannot be read"
    assert peak - kept < 8 * MIB, "a length is believed before it is compared with what there is"
    assert read < cases, "nothing was refused"


def test_a_log_as_the_server_writes_it_is_read():
    assert _read_all(WELL_FORMED) == 5
    reading = Reading()
    reading.read(TABLE_MAP)
    assert reading._rows is not None and reading._rows.key == ("id",)
    values, end = reading._rows.row(ROW, 0)
    assert reading._rows.json(values) == (
        b'{"id":7,"v":"one","n":"1.25","at":1767322800000001,"e":"b","b":"/wA=",'
        b'"j":"{\\"a\\": 1, \\"b\\": [true, -1]}","bits":"BQE="}'
    )
    assert end == len(ROW)


def test_a_wrong_checksum_is_refused():
    torn = bytearray(WELL_FORMED[6])
    torn[40] ^= 1
    with pytest.raises(CorruptionError, match="wrong checksum"):
        EventReader(has_checksums=True).read(bytes(torn))


def test_events_that_are_torn_or_out_of_order_are_refused_and_never_misread():
    campaign(600)


@pytest.mark.slow
def test_a_hundred_thousand_of_them_leave_no_trace():
    campaign(100_000)
