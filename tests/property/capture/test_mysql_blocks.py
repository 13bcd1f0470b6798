"""The kernel makes the same bytes of MySQL's rows as `LogRows` and `Envelope` do.

Whatever is in an event, either way gives the same records up to the same row, and refuses that one in
the same words. What the kernel reads ends where memory begins that nobody may read.
"""

import ctypes
import mmap
import os
import random
import struct
from array import array

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.property.examples import examples

from headrace.capture.change import Change, EncodedChanges
from headrace.capture.envelope import Envelope
from headrace.capture.mysql.decode.binlog import RowsEvent
from headrace.capture.mysql.decode.blocks import AnsweredRows, RowsBlock, log_table, text_table
from headrace.capture.mysql.decode.column_types import TypeCode as T
from headrace.capture.mysql.decode.decimals import decimal_bytes
from headrace.capture.mysql.decode.rows import LogRows, TextRows
from headrace.capture.mysql.decode.values import Kind, LoggedColumn, log_reader
from headrace.capture.mysql.wire.protocol import lenenc
from headrace.client.write import RecordBlock
from headrace.errors import CorruptionError
from headrace.kernels import LogEvent, RowEncoder, encode_logged, encode_texts, rows

NOW_MS = 1_700_000_000_123
SAID = b'"server_id":1,"gtid":"0-1-%d","file":"binlog.1","pos":99,"row":'
LABELS = ("a", 'b"c', "d,é", "")


def little(size: int) -> st.SearchStrategy[bytes]:
    """Numbers of so many bytes, and more often those at the ends of ranges."""
    ends = [bytes(size), b"\xff" * size, b"\xff" * (size - 1) + b"\x7f", bytes(size - 1) + b"\x80"]
    return st.binary(min_size=size, max_size=size) | st.sampled_from(ends)


def counted(width: int, said: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return said.map(lambda each: len(each).to_bytes(width, "little") + each)


def days(years: int) -> st.SearchStrategy[tuple[int, int, int]]:
    return st.tuples(st.integers(0, years), st.integers(0, 13), st.integers(0, 31))


def date_bytes(day: tuple[int, int, int]) -> bytes:
    return (day[0] << 9 | day[1] << 5 | day[2]).to_bytes(3, "little")


def datetime_bytes(day: tuple[int, int, int], clock: int, fraction: bytes) -> bytes:
    packed = (day[0] * 13 + min(day[1], 12)) << 22 | day[2] << 17 | clock
    return ((1 << 39) + packed).to_bytes(5, "big") + fraction


def decimal_octets(digits: int, scale: int) -> st.SearchStrategy[bytes]:
    """Values that a server writes, and sometimes groups of more digits than they may have."""
    size = decimal_bytes(digits, scale)
    octets_of = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
    whole, behind = digits - scale, scale
    groups = [whole % 9, *[9] * (whole // 9), *[9] * (behind // 9), behind % 9]

    def packed(numbers: list[int], is_negative: bool) -> bytes:
        sizes = [octets_of[each] for each in groups]
        raw = bytearray(b"".join(n.to_bytes(size, "big") for n, size in zip(numbers, sizes, strict=True)))
        raw[0] ^= 0x80
        return bytes(each ^ 0xFF for each in raw) if is_negative else bytes(raw)

    numbers = st.tuples(*(st.integers(0, 10**each - 1) for each in groups)).map(list)
    return st.builds(packed, numbers, st.booleans()) | st.binary(min_size=size, max_size=size)


def fraction(digits: int) -> st.SearchStrategy[bytes]:
    size = (digits + 1) // 2
    return st.integers(0, min(100**size + 1, 256**size - 1)).map(lambda each: each.to_bytes(size, "big"))


def moments(code: T, digits: int) -> st.SearchStrategy[bytes]:
    if code is T.TIMESTAMP:
        return st.builds(bytes.__add__, little(4), fraction(digits))
    if code is T.TIME:
        return little(3 + (digits + 1) // 2)
    return st.builds(datetime_bytes, days(9999), st.integers(0, (1 << 17) - 1), fraction(digits))


TEXTS = st.text(max_size=12).map(str.encode)
LATIN = st.text(st.characters(max_codepoint=127), max_size=12).map(str.encode) | st.binary(max_size=6)
DOUBLES = st.floats().map(lambda each: struct.pack("<d", each))
SINGLES = st.floats(width=32).map(lambda each: struct.pack("<f", each))
SHAPES: list[tuple[LoggedColumn, st.SearchStrategy[bytes]]] = [
    *(
        (LoggedColumn(name="", code=code, meta=0, is_unsigned=is_unsigned), little(size))
        for code, size in ((T.TINY, 1), (T.SHORT, 2), (T.INT24, 3), (T.LONG, 4), (T.LONGLONG, 8))
        for is_unsigned in (False, True)
    ),
    (LoggedColumn(name="", code=T.YEAR, meta=0), little(1)),
    (LoggedColumn(name="", code=T.FLOAT, meta=4), SINGLES | little(4)),
    (LoggedColumn(name="", code=T.DOUBLE, meta=8), DOUBLES | little(8)),
    *(
        (LoggedColumn(name="", code=T.DECIMAL, meta=scale << 8 | digits), decimal_octets(digits, scale))
        for digits, scale in ((12, 2), (30, 0), (65, 30), (5, 5), (18, 9), (1, 0))
    ),
    (LoggedColumn(name="", code=T.BIT, meta=1), little(1)),
    (LoggedColumn(name="", code=T.BIT, meta=1 << 8 | 4), little(2)),
    (LoggedColumn(name="", code=T.BIT, meta=8 << 8), little(8)),
    (LoggedColumn(name="", code=T.DATE, meta=0), days(32767).map(date_bytes)),
    *(
        (LoggedColumn(name="", code=code, meta=digits), moments(code, digits))
        for code in (T.TIMESTAMP, T.DATETIME, T.TIME)
        for digits in (0, 1, 3, 6)
    ),
    (LoggedColumn(name="", code=T.STRING, meta=1 << 8 | T.ENUM, labels=LABELS), st.sampled_from(
        [bytes([each]) for each in range(6)])),
    (LoggedColumn(name="", code=T.STRING, meta=2 << 8 | T.SET, labels=LABELS), st.integers(0, 20).map(
        lambda each: each.to_bytes(2, "little"))),
    (LoggedColumn(name="", code=T.VARCHAR, meta=200, charset="utf8mb4"), counted(1, TEXTS)),
    (LoggedColumn(name="", code=T.VARCHAR, meta=300, charset="utf8mb3"), counted(2, TEXTS | LATIN)),
    (LoggedColumn(name="", code=T.VARCHAR, meta=90, charset="latin1"), counted(1, LATIN)),
    (LoggedColumn(name="", code=T.VARCHAR, meta=90, charset="koi8r"), counted(1, LATIN)),
    (LoggedColumn(name="", code=T.BLOB, meta=1, charset="tis620"), counted(1, LATIN)),
    (LoggedColumn(name="", code=T.VARCHAR, meta=90, charset="ascii"), counted(1, LATIN)),
    (LoggedColumn(name="", code=T.VARCHAR, meta=90, charset="sjis"), counted(1, LATIN)),
    (LoggedColumn(name="", code=T.STRING, meta=40 << 8 | 0xFE, charset="utf8mb4"), counted(1, TEXTS)),
    (LoggedColumn(name="", code=T.STRING, meta=4 << 8 | 0xFE), counted(1, st.binary(max_size=5))),
    (LoggedColumn(name="", code=T.VARCHAR, meta=9), counted(1, st.binary(max_size=9))),
    (LoggedColumn(name="", code=T.BLOB, meta=2), counted(2, st.binary(max_size=40))),
    (LoggedColumn(name="", code=T.BLOB, meta=4, charset="utf8mb4"), counted(4, TEXTS)),
]  # fmt: skip


def named(column: LoggedColumn, name: str) -> LoggedColumn:
    return LoggedColumn(
        name=name, code=column.code, meta=column.meta, is_unsigned=column.is_unsigned,
        charset=column.charset, labels=column.labels,
    )  # fmt: skip


@st.composite
def shapes(draw):
    names = draw(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=10, unique=True))
    chosen = [draw(st.sampled_from(SHAPES)) for _ in names]
    columns = [named(column, name) for (column, _), name in zip(chosen, names, strict=True)]
    return columns, [values for _, values in chosen], draw(st.sets(st.sampled_from(names)))


def packed_row(values: list[bytes | None]) -> bytes:
    nulls = sum((value is None) << place for place, value in enumerate(values))
    return nulls.to_bytes((len(values) + 7) // 8, "little") + b"".join(each or b"" for each in values)


@st.composite
def events(draw, *, spoil: bool = False):
    """Columns, key and the rows of an event of them."""
    columns, values, key = draw(shapes())
    op = draw(st.sampled_from("cud"))

    def row() -> bytes:
        return packed_row([None if draw(st.integers(0, 9)) == 0 else draw(each) for each in values])

    data = b""
    for _ in range(draw(st.integers(1, 6))):
        one = row()
        data += one + (draw(st.sampled_from([one, row()])) if op == "u" else b"")
    if spoil and data:
        place = draw(st.integers(0, len(data) - 1))
        data = data[:place] + draw(st.binary(max_size=3)) + data[place + draw(st.integers(0, 3)) :]
    return columns, sorted(key), op, data


ENCODER = RowEncoder()
SMALL = RowEncoder(octets=9_000, records=3)
TIGHT = RowEncoder(octets=40_000, records=3)


def block_of(event, encoder: RowEncoder) -> RowsBlock:
    columns, key, op, data = event
    reader = LogRows("shop.t", [(each.name, log_reader(each)) for each in columns], key)
    layout = log_table(columns, key)
    assert layout is not None
    read = RowsEvent(7, op, len(columns), True, b"head" + data, 4)
    return RowsBlock(read, reader, layout, encoder, SAID)


def envelope() -> Envelope:
    made = Envelope(connector="mariadb", name="shop", database="dä", version="1")
    made.begin("0-1-7", 1_600_000_000_123_456)
    return made


def records_of(items, made: Envelope) -> tuple[list, str]:
    """Key and value of all records, and why there are no more."""
    records = []
    try:
        for each in items:
            if isinstance(each, EncodedChanges):
                encoded = RecordBlock(each.octets, each.numbers, each.count, each.tables, 0)
                records += [(one.topic, one.key, one.value) for one in encoded.records() if one.value]
            else:
                assert isinstance(each, Change)
                records.append((each.table, each.key, made.value(each, NOW_MS)))
    except CorruptionError as error:
        return records, str(error)
    return records, ""


def by_kernel(block: RowsBlock) -> tuple[list, str]:
    made = envelope()
    return records_of(block.encoded(made, NOW_MS), made)


def by_python(block: RowsBlock) -> tuple[list, str]:
    return records_of(block.changes(), envelope())


@settings(max_examples=examples(32), deadline=None)
@given(events(), st.sampled_from([ENCODER, SMALL]))
def test_changes_are_the_same_records_whoever_encodes_them(event, encoder):
    block = block_of(event, encoder)
    assert by_kernel(block) == by_python(block)


@settings(max_examples=examples(24), deadline=None)
@given(events(spoil=True))
def test_malformed_rows_are_refused_at_the_same_place_in_the_same_words(event):
    block = block_of(event, ENCODER)
    assert by_kernel(block) == by_python(block)


NUMBERS = [
    LoggedColumn(name="d", code=T.DOUBLE, meta=8),
    LoggedColumn(name="f", code=T.FLOAT, meta=4),
]


@settings(max_examples=examples(24), deadline=None)
@given(st.lists(st.tuples(st.floats(), st.floats(width=32)), min_size=1, max_size=20))
@example([(float(f"{digit}e{power}"), 1.5) for power in range(-30, 30) for digit in (1, 2, 12345)])
@example([(2.0**power, 2.0 ** (power // 8)) for power in range(-1022, 1024)])
@example([(0.1 + 0.2, 0.0), (-0.0, 16777216.0), (5e-324, 1e-45), (2.0**-44, 3.4028234663852886e38)])
def test_numbers_have_the_fewest_digits_that_mean_them(numbers):
    """Those of the JSON library; the largest and smallest, and some powers of two, are left to it."""
    data = b"".join(b"\0" + struct.pack("<df", *each) for each in numbers)
    block = block_of((NUMBERS, [], "c", data), ENCODER)
    assert by_kernel(block) == by_python(block)


PLAIN = {
    "tiny": (T.TINY, 0, b"\x80"), "big": (T.LONGLONG, 0, b"\xff" * 8), "three": (T.INT24, 0, b"\0\0\x80"),
    "year": (T.YEAR, 0, b"\x7e"), "float": (T.FLOAT, 4, struct.pack("<f", 0.1)),
    "double": (T.DOUBLE, 8, struct.pack("<d", -1.5e-7)),
    "decimal": (T.DECIMAL, 2 << 8 | 12, bytes.fromhex("80000004d22d")), "bit": (T.BIT, 1, b"\1"),
    "bits": (T.BIT, 1 << 8 | 4, b"\x0a\xaa"), "date": (T.DATE, 0, date_bytes((2024, 2, 29))),
    "time": (T.TIME, 3, bytes.fromhex("80c8e21ed2")),
    "datetime": (T.DATETIME, 6, datetime_bytes((1960, 1, 2), 12345, b"\x01\x02\x03")),
    "timestamp": (T.TIMESTAMP, 6, bytes.fromhex("6756ccff") + b"\x00\x00\x01"),
    "zero": (T.TIMESTAMP, 0, bytes(4)), "enum": (T.STRING, 1 << 8 | T.ENUM, b"\x02"),
    "set": (T.STRING, 1 << 8 | T.SET, b"\x05"), "binary": (T.STRING, 4 << 8 | 0xFE, b"\x01\xff"),
    "blob": (T.BLOB, 2, b"\x03\x00\x00\xff\x10"),
}  # fmt: skip
PLAIN_TEXTS = {
    "utf8": ("utf8mb4", 'a "quoted" \\ letter: ü 漢 😀 \x01\n'.encode()),
    "latin": ("latin1", b"na\xefve \x80\x81\n"),
    "sjis": ("sjis", b"plain"),
}


def plain_event(op: str):
    columns = [
        LoggedColumn(name=name, code=code, meta=meta, labels=LABELS)
        for name, (code, meta, _) in PLAIN.items()
    ]
    columns += [
        LoggedColumn(name=name, code=T.VARCHAR, meta=200, charset=charset)
        for name, (charset, _) in PLAIN_TEXTS.items()
    ]
    values = [value for _, _, value in PLAIN.values()]
    values += [bytes([len(each)]) + each for _, each in PLAIN_TEXTS.values()]
    row = packed_row(values)
    return columns, ["tiny", "utf8"], op, row * (4 if op == "u" else 2)


@pytest.mark.parametrize("op", "cud")
def test_plain_rows_are_encoded_by_the_kernel_alone(op, monkeypatch):
    """So that the comparisons above compare two ways, not one with itself."""
    block = block_of(plain_event(op), ENCODER)
    by_pythons = by_python(block)
    with monkeypatch.context() as patched:
        patched.setattr(LogRows, "row", lambda *_: pytest.fail("a plain row was left to Python"))
        by_kernels = by_kernel(block)
    assert by_kernels == by_pythons
    assert len(by_kernels[0]) == 2


# --- what queries answer -------------------------------------------------------------------------

DAYS = st.sampled_from(
    [
        "2024-02-29",
        "1969-12-31",
        "0000-00-00",
        "2026-00-02",
        "9999-12-31",
        "2023-02-29",
        "1970-01-01",
        "20-1-1",
    ]
)
CLOCKS = st.sampled_from(
    [
        "00:00:00",
        "23:59:59.999999",
        "12:30:00.5",
        "838:59:59",
        "1:2:3",
        "12:30",
        "12:30:00.",
        "12:30:00.1234567",
    ]
)
FLOATS = st.floats().map(repr) | st.sampled_from(
    ["1e20", "0.1", "-0", "1.5e-7", "", "1_0", "0x1p3", "16777216"]
)
TYPICAL = {
    Kind.INTEGER: st.integers().map(str) | st.sampled_from(["007", "-0", "+1", "1_000", " 1", "-", "0"]),
    Kind.YEAR: st.sampled_from(["2026", "0000", "1901"]),
    Kind.FLOAT: st.floats(width=32).map(repr) | FLOATS,
    Kind.DOUBLE: FLOATS,
    Kind.DECIMAL: st.decimals(allow_nan=True, allow_infinity=False).map(str)
    | st.sampled_from(["000.500", "-0.00", "0012", "1.", ".5", "-", "1e5"]),
    Kind.DATE: DAYS,
    Kind.TIME: st.builds("{}{}".format, st.sampled_from(["", "-", "--"]), CLOCKS),
    Kind.DATETIME: st.builds("{} {}".format, DAYS, CLOCKS) | DAYS,
    Kind.TIMESTAMP: st.builds("{} {}".format, DAYS, CLOCKS) | DAYS,
    Kind.TEXT: st.text(max_size=300),
    Kind.ENUM: st.text(max_size=5),
    Kind.UUID: st.text(max_size=5),
}
BYTE_KINDS = {Kind.BIT: little(1), Kind.BITS: st.binary(max_size=10), Kind.BYTES: st.binary(max_size=20)}


def length_first(value: bytes | None) -> bytes:
    return b"\xfb" if value is None else lenenc(len(value)) + value


@st.composite
def answers(draw):
    """Columns, key and the bodies of rows that a query answers."""
    names = draw(st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=6, unique=True))
    kinds = [draw(st.sampled_from([*TYPICAL, *BYTE_KINDS])) for _ in names]
    columns = [(name, kind, draw(st.integers(0, 6))) for name, kind in zip(names, kinds, strict=True)]

    def value(kind: Kind) -> bytes | None:
        if draw(st.integers(0, 9)) == 0:
            return None
        if kind in BYTE_KINDS or draw(st.integers(0, 30)) == 0:
            return draw(BYTE_KINDS.get(kind, st.binary(max_size=9)))
        return draw(TYPICAL[kind]).encode("utf-8", "surrogatepass")

    count = draw(st.integers(1, 5))
    bodies = [b"".join(length_first(value(kind)) for kind in kinds) for _ in range(count)]
    return columns, sorted(draw(st.sets(st.sampled_from(names)))), bodies


def answered(answer, encoder: RowEncoder) -> tuple[tuple[list, str], tuple[list, str]]:
    """The records of a snapshot by the kernel, and by Python."""
    columns, key, bodies = answer
    reader, layout = TextRows("shop.t", columns, key), text_table(columns, key)
    assert layout is not None
    block, made = AnsweredRows(bodies, reader, layout, encoder, SAID + b"0"), envelope()
    made.value = lambda change, now_ms: made.snapshot_value(change, 7_000, now_ms)
    return records_of(block.encoded(made, 7_000, NOW_MS), made), records_of(block.rows(), made)


@settings(max_examples=examples(40), deadline=None)
@given(answers(), st.sampled_from([ENCODER, SMALL]))
def test_rows_of_a_snapshot_are_the_same_records_whoever_encodes_them(answer, encoder):
    kernels, python = answered(answer, encoder)
    assert kernels == python


PLAIN_ANSWER = {
    "i": (Kind.INTEGER, b"-900719925474099312"), "u": (Kind.INTEGER, b"18446744073709551615"),
    "y": (Kind.YEAR, b"2026"), "f": (Kind.FLOAT, b"0.10000000149011612"), "d": (Kind.DOUBLE, b"-1.5e-7"),
    "n": (Kind.DECIMAL, b"-0012.50"), "b1": (Kind.BIT, b"\x01"), "b": (Kind.BITS, b"\x0a\xaa"),
    "da": (Kind.DATE, b"1000-01-01"), "d0": (Kind.DATE, b"0000-00-00"), "ti": (Kind.TIME, b"-838:59:59.25"),
    "dt": (Kind.DATETIME, b"1960-01-02 03:04:05.678"), "ts": (Kind.TIMESTAMP, b"2038-01-19 03:14:07.01"),
    "t": (Kind.TEXT, 'a "quoted" ü 漢 😀'.encode() * 20), "by": (Kind.BYTES, b"\0\xff\x10\0"),
    "uu": (Kind.UUID, b"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"), "no": (Kind.TEXT, None),
}  # fmt: skip


def test_plain_rows_of_a_snapshot_are_encoded_by_the_kernel_alone(monkeypatch):
    columns = [(name, kind, 3) for name, (kind, _) in PLAIN_ANSWER.items()]
    body = b"".join(length_first(value) for _, value in PLAIN_ANSWER.values())
    kernels, python = answered((columns, ["i", "t"], [body, body]), ENCODER)
    assert kernels == python
    with monkeypatch.context() as patched:
        patched.setattr(TextRows, "row", lambda *_: pytest.fail("a plain row was left to Python"))
        block = AnsweredRows(
            [body, body], TextRows("shop.t", columns, ["i"]), text_table(columns, ["i"]), ENCODER, SAID + b"0"
        )
        assert sum(each.count for each in block.encoded(envelope(), 7_000, NOW_MS)) == 2


# --- bytes that no server sends -------------------------------------------------------------------

PAGES = 8
_area = mmap.mmap(-1, (PAGES + 1) * mmap.PAGESIZE)
_begin = ctypes.addressof(ctypes.c_char.from_buffer(_area))
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(_begin + PAGES * mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0


def spoilt(chance: random.Random) -> tuple:
    """Rows that are cut, doubled, or have bytes and lengths changed."""
    columns, key, op, whole = plain_event(chance.choice("cud"))
    data = bytearray(whole * chance.randint(1, 3))
    for _ in range(chance.randrange(4)):
        place = chance.randrange(len(data))
        match chance.randrange(3):
            case 0:
                data[place] = chance.randrange(256)
            case 1:
                del data[place + 1 :]
            case _:
                data[place : place + 2] = chance.choice((b"\xff\xff", b"\0\0", b"\x7f\xff"))
    return columns, key, op, bytes(data)


def campaign(cases: int) -> None:
    seed = int(os.environ.get("HEADRACE_FUZZ_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HEADRACE_FUZZ_SEED={seed}")
    chance = random.Random(seed)
    columns, key, *_ = plain_event("c")
    layout = log_table(columns, key)
    assert layout is not None
    encoded = refused = 0
    for _ in range(cases):
        event = spoilt(chance)
        data = event[3]
        at = PAGES * mmap.PAGESIZE - len(data)
        _area[at : at + len(data)] = data
        guarded = memoryview(_area)[at : at + len(data)]
        said = LogEvent(op=event[2], source=b"a", behind_row=b"b", between_orders=b"c", end=b"d")
        done = encode_logged(TIGHT, guarded, 0, layout, said)
        assert 0 <= done.end <= len(data) and done.count <= 3 and said.row == said.total == done.count
        for number in range(done.count):
            numbers = TIGHT.numbers[rows.RECORD_NUMBERS * number : rows.RECORD_NUMBERS * (number + 1)]
            assert 0 <= numbers[4] <= numbers[2] <= numbers[2] + max(numbers[3], 0) <= len(TIGHT.octets)
        encoded, refused = encoded + done.count, refused + (done.stop is rows.Stop.NOT_PLAIN)
        block = block_of(event, ENCODER)
        assert by_kernel(block) == by_python(block)
    assert encoded and refused


def campaign_of_answers(cases: int) -> None:
    """Rows of which bytes are changed, or whose ends are elsewhere."""
    chance = random.Random(cases)
    columns = [(name, kind, 3) for name, (kind, _) in PLAIN_ANSWER.items()]
    layout = text_table(columns, ["i"])
    assert layout is not None
    whole = b"".join(length_first(value) for _, value in PLAIN_ANSWER.values())
    encoded = refused = 0
    for _ in range(cases):
        data = bytearray(whole * 2)
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.choice((0, 0x7F, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF))
        del data[chance.choice((len(data), chance.randrange(1, len(data)))) :]
        middle = chance.choice((len(whole), chance.randrange(len(data))))
        ends = array("q", sorted({min(middle, len(data)), len(data)}))
        at = PAGES * mmap.PAGESIZE - len(data)
        _area[at : at + len(data)] = data
        done = encode_texts(TIGHT, memoryview(_area)[at : at + len(data)], ends, 0, layout, b"behind")
        assert done.end == done.count <= len(ends)
        encoded, refused = encoded + done.count, refused + (done.stop is rows.Stop.NOT_PLAIN)
    assert encoded and refused


def test_torn_and_absurd_answers_are_never_read_beyond_their_end():
    campaign_of_answers(2_000)


def test_torn_and_absurd_rows_are_never_read_beyond_their_end():
    campaign(1_000)


@pytest.mark.slow
def test_a_hundred_thousand_of_them_are_refused_or_read_alike():
    campaign(100_000)
    campaign_of_answers(100_000)
