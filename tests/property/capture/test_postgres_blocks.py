"""The kernel makes the same bytes of PostgreSQL's changes as `RowWriter` and `Envelope` do.

Whatever is in a message, either way gives the same records up to the same message, and refuses that
one in the same words. What the kernel reads ends where memory begins that nobody may read.
"""

import ctypes
import mmap
import os
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples

from headrace.capture.change import Change, EncodedChanges
from headrace.capture.envelope import Envelope
from headrace.capture.postgres.decode.blocks import AnsweredRows, MessageBlock, row_table
from headrace.capture.postgres.decode.pgoutput import Delete, Insert, Update, WalData, read_message
from headrace.capture.postgres.decode.rows import RowColumn, RowWriter
from headrace.capture.postgres.decode.values import Encoding, Kind
from headrace.client.write import RecordBlock
from headrace.errors import CorruptionError
from headrace.kernels import RowEncoder, RowTables, rows

NOW_MS = 1_700_000_000_123
LAST = b'\\"77\\"'
XID = 700

CLOCKS = st.sampled_from(
    ["00:00:00", "23:59:59.999999", "12:30:00.5", "24:00:00", "1:2:3", "12:30", "12:30:00."]
)
DATES = st.sampled_from(
    [
        "1970-01-01",
        "2024-02-29",
        "1969-12-31",
        "0044-03-15 BC",
        "99999-12-31",
        "infinity",
        "-infinity",
        "2024-13-01",
    ]
)
ZONES = st.sampled_from(["+00", "+00 BC", "+02", ""])
HEXADECIMAL = st.binary(max_size=20).map(lambda each: "\\x" + each.hex())
TYPICAL = {
    Kind.TEXT: st.text(),
    Kind.INTEGER: st.integers().map(str) | st.sampled_from(["007", "-0", "+1", "1_000", " 1", "-", ""]),
    Kind.BOOLEAN: st.sampled_from(["t", "f", "true", ""]),
    Kind.FLOAT: st.floats().map(repr) | st.sampled_from(["NaN", "1e+30", "1e", ".5", "1_0", "-"]),
    Kind.DECIMAL: st.decimals(allow_nan=True, allow_infinity=False).map(str),
    Kind.DECIMAL_AS_DOUBLE: st.decimals(allow_nan=False, allow_infinity=False).map(str),
    Kind.DATE: DATES,
    Kind.TIME_MS: CLOCKS,
    Kind.TIME_US: CLOCKS,
    Kind.TIMESTAMP_MS: st.builds("{} {}".format, DATES, CLOCKS) | DATES,
    Kind.TIMESTAMP_US: st.builds("{} {}".format, DATES, CLOCKS) | DATES,
    Kind.TIMESTAMPTZ: st.builds(
        "{} {}{}".format, DATES, CLOCKS, st.sampled_from(["+00", "+00 BC", "+02", ""])
    ),
    Kind.BYTES: st.binary(max_size=20).map(lambda each: "\\x" + each.hex())
    | st.sampled_from(["\\x0", "\\xAb", "x"]),
    Kind.BIT: st.sampled_from(["0", "1", "01"]),
    Kind.MONEY: st.sampled_from(["-$1,234.56", "$0.00", "1 €", ""]),
}
ENCODED = sorted(TYPICAL)


@st.composite
def tables(draw) -> RowWriter:
    count = draw(st.integers(1, 5))
    names = draw(st.lists(st.text(min_size=1, max_size=6), min_size=count, max_size=count, unique=True))
    kinds = [draw(st.sampled_from(ENCODED)) for _ in names]
    columns = [
        RowColumn(name=name, type_oid=1, type_modifier=-1, encoding=Encoding(kind))
        for name, kind in zip(names, kinds, strict=True)
    ]
    key = draw(st.sets(st.sampled_from(names)))
    return RowWriter(draw(st.sampled_from(["public.orders", 'odd."name"'])), 0, columns, sorted(key))


@st.composite
def cells(draw, kind: Kind, *, spoil: bool) -> bytes:
    choice = draw(st.integers(0, 20))
    if choice == 0:
        return b"n"
    if choice == 1:
        return b"u"
    text = draw(TYPICAL[kind]).encode("utf-8", "surrogatepass")
    if spoil and draw(st.integers(0, 15)) == 0:
        text = draw(st.binary(max_size=12))
    return b"t" + struct.pack("!i", len(text)) + text


@st.composite
def message_of(draw, writer: RowWriter, *, spoil: bool) -> bytes:
    def row() -> bytes:
        kinds = [each.encoding.kind for each in writer.columns]
        return struct.pack("!h", len(kinds)) + b"".join(draw(cells(each, spoil=spoil)) for each in kinds)

    head = struct.pack("!I", writer.oid)
    form = draw(st.sampled_from(["I", "I", "U", "UK", "UO", "UO same", "DK", "DO"]))
    if form == "I":
        return b"I" + head + b"N" + row()
    if form == "U":
        return b"U" + head + b"N" + row()
    if form == "UO same":
        same = row()
        return b"U" + head + b"O" + same + b"N" + same
    if form[0] == "U":
        return b"U" + head + form[1].encode() + row() + b"N" + row()
    return b"D" + head + form[1].encode() + row()


def framed(lsn: int, payload: bytes) -> bytes:
    body = b"w" + struct.pack("!QQq", lsn, lsn + 9, 5) + payload
    return b"d" + struct.pack("!i", len(body) + 4) + body


@st.composite
def streams(draw, *, spoil: bool = False) -> tuple[list[RowWriter], bytes]:
    writers = draw(st.lists(tables(), min_size=1, max_size=3))
    for oid, writer in enumerate(writers, 16384):
        writer.oid, writer.table = oid, f"{writer.table}{oid}"
    messages = [
        draw(message_of(draw(st.sampled_from(writers)), spoil=spoil)) for _ in range(draw(st.integers(1, 8)))
    ]
    return writers, b"".join(framed(10**12 + n, each) for n, each in enumerate(messages))


class Reader:
    """Reads one message as the source does."""

    def __init__(self, writers: list[RowWriter]) -> None:
        self._writers = {each.oid: each for each in writers}

    def __call__(self, data: WalData):
        source = b'"sequence":"[%b,\\"%d\\"]","txId":%d,"lsn":%d,"xmin":null' % (
            LAST,
            data.lsn,
            XID,
            data.lsn,
        )
        message = read_message(data.payload)
        assert isinstance(message, Insert | Update | Delete)
        writer = self._writers[message.relation_oid]
        for row in (getattr(message, "new", None), getattr(message, "old", None)):
            if row is not None and len(row) != len(writer.columns):
                raise CorruptionError("another number of columns")
        if isinstance(message, Update):
            yield from writer.updated(message, source)
        elif isinstance(message, Insert):
            yield writer.inserted(message, source)
        else:
            yield writer.deleted(message, source)


def envelope() -> Envelope:
    made = Envelope(connector="postgresql", name="shop", database="dä", version="1")
    made.begin("700:77", 1_600_000_000_123_456)
    return made


def block_of(writers: list[RowWriter], data: bytes, encoder: RowEncoder) -> tuple[MessageBlock, int]:
    told = RowTables([each for each in map(row_table, writers) if each is not None])
    found = told.find(bytearray(data), 0) if data else rows.FoundMessages(0, 0, 0, ())
    read = Reader(writers)
    block = MessageBlock(data[: found.end], found, told, encoder, xid=XID, last_commit=LAST, read=read)
    return block, found.count


def by_kernel(block: MessageBlock) -> tuple[list, str]:
    made, records = envelope(), []
    try:
        for each in block.encoded(made, NOW_MS):
            if isinstance(each, EncodedChanges):
                encoded = RecordBlock(each.octets, each.numbers, each.count, each.tables, 0)
                records += [(each.topic, each.key, each.value) for each in encoded.records()]
            else:
                records += as_records(each, made)
    except CorruptionError as error:
        return records, str(error)
    return records, ""


def by_python(block: MessageBlock) -> tuple[list, str]:
    made, records = envelope(), []
    try:
        for each in block.changes():
            records += as_records(each, made)
    except CorruptionError as error:
        return records, str(error)
    return records, ""


def as_records(item, made: Envelope) -> list:
    if not isinstance(item, Change):
        return [item]
    tombstone = [(item.table, item.key, None)] if item.op == "d" and item.key is not None else []
    return [(item.table, item.key, made.value(item, NOW_MS)), *tombstone]


ENCODER = RowEncoder()
SMALL = RowEncoder(octets=6_000, records=3)


@settings(max_examples=examples(24), deadline=None)
@given(streams(), st.sampled_from([ENCODER, SMALL]))
def test_changes_are_the_same_records_whoever_encodes_them(stream, encoder):
    block, count = block_of(*stream, encoder)
    assert count >= 1
    assert by_kernel(block) == by_python(block)


@settings(max_examples=examples(24), deadline=None)
@given(streams(spoil=True))
def test_malformed_values_are_refused_at_the_same_message_in_the_same_words(stream):
    block, _ = block_of(*stream, ENCODER)
    assert by_kernel(block) == by_python(block)


def answered(row: bytes) -> bytes:
    """A row of the stream as a query answers it."""
    at, cells = 2, b""
    while at < len(row):
        length = struct.unpack_from("!i", row, at + 1)[0] if row[at : at + 1] == b"t" else -1
        cells += struct.pack("!i", length) + row[at + 5 : at + 5 + max(length, 0)]
        at += 1 + (4 + length if length >= 0 else 0)
    return b"D" + struct.pack("!i", len(cells) + 6) + row[:2] + cells


@settings(max_examples=examples(24), deadline=None)
@given(
    tables().flatmap(
        lambda each: st.tuples(st.just(each), st.lists(message_of(each, spoil=True), max_size=6))
    )
)
def test_rows_of_a_snapshot_are_the_same_records_whoever_encodes_them(case):
    writer, messages = case
    rows_of = [each[6:] for each in messages if each[:1] == b"I"]
    block = AnsweredRows(b"".join(map(answered, rows_of)), writer, SMALL)
    made, kernels, python = envelope(), [], []
    outcomes = []
    for found, items in ((kernels, block.encoded(made, 7_000, NOW_MS)), (python, block.rows())):
        try:
            for each in items:
                if isinstance(each, EncodedChanges):
                    encoded = RecordBlock(each.octets, each.numbers, each.count, each.tables, 0)
                    found += [(each.topic, each.key, each.value) for each in encoded.records()]
                else:
                    found.append((each.table, each.key, made.snapshot_value(each, 7_000, NOW_MS)))
        except CorruptionError as error:
            outcomes.append(str(error))
    assert kernels == python
    assert not outcomes or (outcomes[0] == outcomes[-1] and len(outcomes) == 2)


def test_plain_rows_are_encoded_by_the_kernel_alone():
    """So that the comparisons above compare two ways, not one with itself."""
    texts = {
        Kind.TEXT: 'a "quoted" \\ letter: ü 漢 😀 \x01\n',
        Kind.INTEGER: "-12",
        Kind.BOOLEAN: "t",
        Kind.FLOAT: "-1.5e-07",
        Kind.DECIMAL: "12.50",
        Kind.DECIMAL_AS_DOUBLE: "12.50",
        Kind.DATE: "1969-12-31",
        Kind.TIME_MS: "12:30:00.5",
        Kind.TIME_US: "12:30:00.000001",
        Kind.TIMESTAMP_MS: "1969-12-31 23:59:59.9995",
        Kind.TIMESTAMP_US: "2024-02-29 12:30:00",
        Kind.TIMESTAMPTZ: "2024-02-29 12:30:00.25+00",
        Kind.BYTES: "\\x00ff10",
        Kind.BIT: "1",
        Kind.MONEY: "-$1,234.56",
    }
    columns = [
        RowColumn(name=kind.name, type_oid=1, type_modifier=-1, encoding=Encoding(kind)) for kind in texts
    ]
    writer = RowWriter("public.t", 16384, columns, ["INTEGER", "TEXT"])
    row = struct.pack("!h", len(texts)) + b"".join(
        b"t" + struct.pack("!i", len(each.encode())) + each.encode() for each in texts.values()
    )
    head = struct.pack("!I", 16384)
    payloads = [b"I" + head + b"N" + row, b"U" + head + b"O" + row + b"N" + row, b"D" + head + b"O" + row]
    data = b"".join(framed(n, each) for n, each in enumerate(payloads))
    block, _ = block_of([writer], data, ENCODER)
    block._read = lambda _: pytest.fail("a plain row was left to Python")
    by_kernels = by_kernel(block)
    block._read = Reader([writer])
    assert by_kernels == by_python(block)


# --- bytes that no server sends -------------------------------------------------------------------

PAGES = 8
_area = mmap.mmap(-1, (PAGES + 1) * mmap.PAGESIZE)
_begin = ctypes.addressof(ctypes.c_char.from_buffer(_area))
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(_begin + PAGES * mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0

WRITERS = [
    RowWriter(
        f"public.t{oid}",
        oid,
        [
            RowColumn(name=f"c{n}", type_oid=1, type_modifier=-1, encoding=Encoding(kind))
            for n, kind in enumerate((Kind.INTEGER, Kind.TEXT, Kind.TIMESTAMPTZ, Kind.BYTES))
        ],
        ["c0"],
    )
    for oid in (16384, 16385)
]


def well_formed(chance: random.Random) -> list[bytes]:
    texts = [b"7", "ü\n".encode() * chance.randrange(9), b"2024-02-29 12:30:00+00", b"\\x00ff"]
    row = struct.pack("!h", 4) + b"".join(b"t" + struct.pack("!i", len(each)) + each for each in texts)
    head = struct.pack("!I", chance.choice((16384, 16385, 16385)))
    payloads = [
        b"I" + head + b"N" + row,
        b"U" + head + b"O" + row + b"N" + row,
        b"U" + head + b"K" + row + b"N" + row,
        b"D" + head + b"K" + row,
    ]
    return [framed(chance.randrange(2**63), chance.choice(payloads)) for _ in range(chance.randint(1, 4))]


def spoilt(chance: random.Random) -> bytes:
    """Messages that are cut, reordered, doubled, or have bytes and lengths changed."""
    messages = well_formed(chance)
    data = bytearray(b"".join(chance.sample(messages, len(messages)) + messages[: chance.randrange(2)]))
    for _ in range(chance.randrange(4)):
        place = chance.randrange(len(data))
        match chance.randrange(3):
            case 0:
                data[place] = chance.randrange(256)
            case 1:
                del data[place:]
                data += b"d"
            case _:
                data[place : place + 4] = struct.pack(
                    "!i", chance.choice((-1, 2**31 - 1, 2**16, -(2**31), 3))
                )
    return bytes(data)


def campaign(cases: int) -> None:
    seed = int(os.environ.get("HEADRACE_FUZZ_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HEADRACE_FUZZ_SEED={seed}")
    chance = random.Random(seed)
    told = RowTables([each for each in map(row_table, WRITERS) if each is not None])
    texts = rows.RowTexts(between_places=b"a", before_op=b"b", behind_op=b"c", between_orders=b"d", end=b"e")
    used = [rows.UsedTable(number, b"source", 0) for number in range(2)]
    encoded = refused = 0
    for _ in range(cases):
        data = spoilt(chance)
        at = PAGES * mmap.PAGESIZE - len(data)
        _area[at : at + len(data)] = data
        guarded = memoryview(_area)[at : at + len(data)]
        found = told.find(guarded, 0)
        assert 0 <= found.end <= len(data)
        done, _ = SMALL.encode_changes(guarded, 0, told, used, texts, 0)
        assert done.end <= len(data) and done.count <= 3
        for number in range(done.count):
            numbers = SMALL.numbers[rows.RECORD_NUMBERS * number : rows.RECORD_NUMBERS * (number + 1)]
            assert 0 <= numbers[4] <= numbers[2] <= numbers[2] + max(numbers[3], 0) <= len(SMALL.octets)
        SMALL.encode_answers(guarded, 0, told.tables[0], b"behind")
        encoded, refused = encoded + done.count, refused + (done.stop is rows.Stop.NOT_PLAIN)
        block, _ = block_of(WRITERS, data, ENCODER)
        assert by_kernel(block) == by_python(block)
    assert encoded and refused


def test_torn_and_absurd_messages_are_never_read_beyond_their_end():
    campaign(1_000)


@pytest.mark.slow
def test_a_hundred_thousand_of_them_are_refused_or_read_alike():
    campaign(100_000)
