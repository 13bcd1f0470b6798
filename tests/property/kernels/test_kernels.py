"""The compiled loops do what a few lines of Python do, and never look beyond the bytes they are given.

The bytes end where a page begins that nobody may read: one step too far ends the process.
"""

import ctypes
import errno
import mmap
import os
import re
import select
import socket
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.examples import examples

from headrace.column_hash import hash_columns
from headrace.errors import CorruptionError
from headrace.kernels import columnar as kernels
from headrace.kernels.batches import (
    MISPLACED,
    MOST_PARTS,
    WRONG_SUM,
    Check,
    SendDescriptors,
    SendOutcome,
    SendProgress,
    SendWindow,
    Walk,
    check_bytes,
    send_checked,
    sum_bytes,
    walk_batches,
)
from headrace.kernels.columnar import JsonCell, JsonKind
from headrace.records import HEADER_BYTES, Record, columns, encode_batch, read_header, stamp

NO_ACCESS = 0
PAGES = 16
_area = mmap.mmap(-1, (PAGES + 1) * mmap.PAGESIZE)
_octets = np.frombuffer(_area, np.uint8)
_end = PAGES * mmap.PAGESIZE
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(_octets.ctypes.data + _end), mmap.PAGESIZE, NO_ACCESS) == 0


def guarded(data):
    """The same bytes, right before memory that may not be read."""
    placed = _octets[_end - len(data) : _end]
    placed[:] = np.frombuffer(data, np.uint8)
    return placed


# --- checks -----------------------------------------------------------------------------------


@given(st.binary(max_size=900) | st.integers(0, 60_000).map(lambda size: bytes(range(251)) * (size // 251)))
def test_a_checksum_is_the_same_by_instruction_and_by_table(data):
    assert sum_bytes(data) == sum_bytes(data, by_table=True) == crc32c(data)


@st.composite
def stretches(draw):
    """Batches in their places, one of them changed perhaps, and perhaps cut somewhere."""
    data = bytearray()
    for number in range(draw(st.integers(0, 5))):
        batch = encode_batch([Record(0, 1000, None, bytes(draw(st.integers(0, 900))))])
        stamp(batch, 0, number, 0)
        data += batch
    for at, octet in draw(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 255)), max_size=1)):
        if at < len(data):
            data[at] = octet
    return bytes(data[: draw(st.just(len(data)) | st.integers(0, len(data)))])


def intact(data, next_offset, gaps):
    """Where the batches end that pass each check, the offset there, and what is wrong with the next."""
    at = 0
    while len(data) - at >= HEADER_BYTES:
        header = read_header(data, at)
        in_place = header.base_offset >= next_offset if gaps else header.base_offset == next_offset
        if not in_place or header.leader_epoch or header.magic != 2 or header.size_bytes < HEADER_BYTES:
            return at, next_offset, MISPLACED
        if header.last_offset_delta < 0 or header.base_offset >= 2**63 - 2**31:
            return at, next_offset, MISPLACED
        if at + header.size_bytes > len(data):
            break
        if crc32c(data[at + 21 : at + header.size_bytes]) != header.crc:
            return at, next_offset, WRONG_SUM
        at += header.size_bytes
        next_offset = header.base_offset + header.last_offset_delta + 1
    return at, next_offset, 0


@settings(max_examples=examples(120))
@given(stretches(), st.booleans())
def test_a_walk_ends_where_a_batch_is_wrong_or_cut(data, gaps):
    walk = Walk(next_offset=0, gaps=gaps)
    ended = walk_batches(memoryview(guarded(data)), 0, walk)
    assert (ended, walk.next_offset, walk.fault) == intact(data, 0, gaps)


@settings(max_examples=examples(120))
@given(stretches(), st.booleans(), st.lists(st.integers(0, 4000), max_size=6).map(sorted))
def test_a_check_in_pieces_ends_where_a_walk_over_the_whole_does(data, gaps, cuts):
    check = Check(Walk(next_offset=0, gaps=gaps))
    places = [0, *(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(places):
        if check_bytes(memoryview(guarded(data[start:end])), check):
            break
    assert (check.position, check.walk.next_offset, check.walk.fault) == intact(data, 0, gaps)


# --- to a socket ------------------------------------------------------------------------------


def sent_in_turns(path, part, before, most=1 << 20, check=None, others=-1, parts=1):
    """What comes out of a socket that is read whenever it is full, and the outcomes on the way."""
    size, window = path.stat().st_size, SendWindow(memoryview(bytearray(parts * part)), part)
    check = check or Check(Walk(next_offset=0))
    sending = SendProgress(position=check.position, end=size)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    came, outcomes, filled = bytearray(), [], len(before)
    window.octets[:filled] = before
    with ours, theirs, path.open("rb") as file:
        route = SendDescriptors(file.fileno(), ours.fileno(), others)
        while not outcomes or outcomes[-1] not in (
            SendOutcome.ENDED,
            SendOutcome.HAS_A_FAULT,
            SendOutcome.UNREADABLE,
        ):
            outcomes.append(send_checked(route, window, filled, most, check, sending))
            while select.select([theirs], [], [], 0)[0]:
                came += theirs.recv(1 << 16)
            if outcomes[-1] is not SendOutcome.HAS_A_FAULT:
                assert sending.stop - sending.start <= part
                came += window.octets[sending.start : sending.stop]
            filled = 0
    return bytes(came), outcomes


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    st.lists(st.integers(0, 30_000), max_size=6),
    st.integers(64, 20_000),
    st.one_of(st.binary(max_size=64), st.none()),
    st.integers(1, MOST_PARTS),
)
def test_a_file_is_sent_as_it_is_whatever_the_socket_takes(tmp_path, sizes, part, before, parts):
    path, data, elsewhere = tmp_path / "segment", bytearray(), bytes(100)
    before = bytes(part) if before is None else before  # a part that is filled already
    for number, size in enumerate(sizes):
        batch = encode_batch([Record(0, 1000, None, bytes(size))])
        stamp(batch, 0, number, 0)
        data += batch
    path.write_bytes(elsewhere + data)
    check = Check(Walk(next_offset=0), position=len(elsewhere))
    came, _ = sent_in_turns(path, part, before, check=check, parts=parts)
    assert came == before + data
    assert (check.position, check.walk.next_offset) == (len(elsewhere + data), len(sizes))


@pytest.fixture
def four_batches(tmp_path):
    data = bytearray()
    for number in range(4):
        batch = encode_batch([Record(0, 1000, None, bytes(1000))])
        stamp(batch, 0, number, 0)
        data += batch
    path = tmp_path / "segment"
    path.write_bytes(data)
    return path, data


def test_nothing_of_a_window_with_a_damaged_batch_is_sent(four_batches):
    path, data = four_batches
    each = len(data) // 4
    data[2 * each + 500] ^= 1
    path.write_bytes(data)
    check = Check(Walk(next_offset=0))
    came, outcomes = sent_in_turns(path, each, b"", check=check)
    assert (came, outcomes[-1]) == (bytes(data[: 2 * each]), SendOutcome.HAS_A_FAULT)
    assert (check.position, check.walk.next_offset, check.walk.fault) == (2 * each, 2, WRONG_SUM)


def test_a_turn_ends_after_so_many_bytes_or_when_others_have_something_to_do(four_batches):
    path, data = four_batches
    each = len(data) // 4
    assert SendOutcome.TURN_IS_OVER not in sent_in_turns(path, each, b"")[1]
    came, outcomes = sent_in_turns(path, each, b"", most=each)
    assert (came, outcomes.count(SendOutcome.TURN_IS_OVER)) == (data, 3)
    reading, writing = os.pipe()
    try:
        assert SendOutcome.TURN_IS_OVER not in sent_in_turns(path, each, b"", others=reading)[1]
        os.write(writing, b"!")
        for parts in (1, 4):  # whoever waits does not wait for a whole window
            came, outcomes = sent_in_turns(path, each, b"", others=reading, parts=parts)
            assert (came, outcomes.count(SendOutcome.TURN_IS_OVER)) == (data, 3)
    finally:
        os.close(reading)
        os.close(writing)


def test_a_file_that_ends_early_is_told_from_one_that_cannot_be_read(four_batches):
    path, data = four_batches
    window, check = SendWindow(memoryview(bytearray(1 << 16)), 1 << 16), Check(Walk(next_offset=0))
    with path.open("rb") as file:
        sending = SendProgress(position=0, end=len(data) + 1)
        assert (
            send_checked(SendDescriptors(file.fileno(), -1), window, 0, 1 << 20, check, sending)
            is SendOutcome.UNREADABLE
        )
        assert (sending.error, sending.position) == (0, len(data))
    sending = SendProgress(position=0, end=len(data))
    assert send_checked(SendDescriptors(-1, -1), window, 0, 1 << 20, check, sending) is SendOutcome.UNREADABLE
    assert sending.error == errno.EBADF


# --- records ----------------------------------------------------------------------------------


def varint(number):
    """Zigzag, as Kafka writes numbers."""
    bits = (number << 1 ^ number >> 63) & (1 << 64) - 1
    octets = bytearray()
    while bits > 127:
        octets.append(bits & 127 | 128)
        bits >>= 7
    return bytes([*octets, bits])


def sized(content):
    return varint(-1) if content is None else varint(len(content)) + content


def record(offset, time, key, value, headers):
    body = b"\0" + varint(time) + varint(offset) + sized(key) + sized(value) + varint(len(headers))
    body += b"".join(sized(name) + sized(content) for name, content in headers)
    return varint(len(body)) + body


class MisfitError(Exception):
    pass


class Reader:
    """The format, read slowly."""

    def __init__(self, data, position, end):
        self.data, self.position, self.end = data, position, end

    def varint(self):
        bits = 0
        for shift in range(0, 70, 7):
            if self.position >= self.end:
                raise MisfitError
            octet = self.data[self.position]
            self.position += 1
            bits |= (octet & 127) << shift
            if octet < 128:
                bits &= (1 << 64) - 1
                return bits >> 1 ^ -(bits & 1)
        raise MisfitError

    def sized(self):
        length = self.varint()
        if length < -1 or self.position + length > self.end:
            raise MisfitError
        start = self.position
        self.position += max(length, 0)
        return start, length

    def record(self):
        size = self.varint()
        if size < 1 or self.position + size > self.end:
            raise MisfitError
        inner = Reader(self.data, self.position + 1, self.position + size)
        time, offset = inner.varint(), inner.varint()
        key, value, headers = inner.sized(), inner.sized(), inner.varint()
        left = inner.end - inner.position
        if not 0 <= headers <= left // 2 or (headers == 0 and left):
            raise MisfitError
        self.position = inner.end
        return [offset, time, *key, *value, headers, inner.position, inner.end]


def laid_out(data, count):
    """How many records fit (-1: bytes are left over), and the parts of those that do."""
    reader, parts = Reader(data, 0, len(data)), []
    for _ in range(count):
        try:
            parts.append(reader.record())
        except MisfitError:
            return len(parts), parts
    return (count if reader.position == len(data) else -1), parts


contents = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=200)
records = st.builds(
    record,
    st.integers(0, 1000),
    st.integers(-(2**62), 2**62),
    contents,
    contents,
    st.lists(st.tuples(st.binary(max_size=5), contents), max_size=3),
)


@st.composite
def sections(draw):
    """Records one behind the other, right ones or with some bytes changed, and how many they claim to be."""
    several = draw(st.lists(records, max_size=6))
    data = bytearray(b"".join(several))
    for at, octet in draw(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3)):
        if at < len(data):
            data[at] = octet
    cut = draw(st.just(len(data)) | st.integers(0, len(data)))
    return bytes(data[:cut]), max(0, len(several) + draw(st.sampled_from([0, 0, 0, 1, -1])))


@given(sections())
def test_records_are_laid_out_as_the_format_says(section):
    data, count = section
    parts = np.full((kernels.PARTS, count), -7, np.int64)
    fitting = kernels.lay_out_records(guarded(data), 0, len(data), count, 0, 0, parts)
    expected, rows = laid_out(data, count)
    assert fitting == expected
    known = len(rows)
    assert parts[:, :known].T.tolist() == rows


@st.composite
def batches(draw):
    """Whole batches one behind the other, control batches and stamped ones among them; mostly right."""
    several = []
    for number in range(draw(st.integers(0, 4))):
        records = [Record(0, 1000 + at, b"k", bytes(at)) for at in range(draw(st.integers(1, 5)))]
        batch = encode_batch(records)
        stamp(batch, 0, 10 * number, 0)
        if draw(st.booleans()):
            batch[22] |= 32 if draw(st.booleans()) else 8
        several.append(batch)
    data = bytearray(b"".join(several))
    for at, octet in draw(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=2)):
        if at < len(data):
            data[at] = octet
    return bytes(data[: draw(st.just(len(data)) | st.integers(0, len(data)))])


@settings(max_examples=examples(120))
@given(batches())
def test_batches_are_laid_out_in_place_as_one_by_one(data):
    in_place = kernels.lay_out_batches(guarded(data))
    try:
        octets, one_by_one = columns._lay_out_each(memoryview(data))
    except CorruptionError:
        assert in_place is None
        return
    if in_place is None:  # then one is compressed, by a byte that was changed
        positions = [0]
        while positions[-1] < len(data):
            positions.append(positions[-1] + read_header(data, positions[-1]).size_bytes)
        assert any(read_header(data, at).codec for at in positions[:-1])
        return
    facts = [0, 1, 3, 5, 6]  # offset, timestamp, lengths, headers
    assert in_place[facts].tolist() == one_by_one[facts].tolist()
    for start, length in ((2, 3), (4, 5)):
        one, other = (
            kernels.gather(*each)
            for each in ((guarded(data), *in_place[[start, length]]), (octets, *one_by_one[[start, length]]))
        )
        assert one[1].tobytes() == other[1].tobytes()


@given(sections())
def test_headers_are_laid_out_as_the_format_says(section):
    data, count = section
    _, rows = laid_out(data, count)
    expected, fitting = [], 0
    for *_, headers, start, end in rows:
        reader, several = Reader(data, start, end), []
        try:
            several = [[*reader.sized(), *reader.sized()] for _ in range(headers)]
        except MisfitError:
            break
        if reader.position != end:
            break
        expected += several
        fitting += 1
    table = np.array(rows, np.int64).reshape(-1, kernels.PARTS)
    parts, found = kernels.lay_out_headers(guarded(data), *(table[:, at] for at in (6, 7, 8)))
    assert found == fitting
    assert parts[:, : len(expected)].T.tolist() == expected


@given(st.binary(max_size=300), st.data())
def test_what_is_gathered_is_what_lies_there(data, draw):
    count = draw.draw(st.integers(0, 10))
    starts = [draw.draw(st.integers(0, len(data))) for _ in range(count)]
    lengths = [draw.draw(st.integers(-1, len(data) - start)) for start in starts]
    bounds, octets = kernels.gather(guarded(data), np.array(starts, np.int64), np.array(lengths, np.int64))
    pieces = [data[start : start + max(length, 0)] for start, length in zip(starts, lengths, strict=True)]
    assert octets.tobytes() == b"".join(pieces)
    assert bounds.tolist() == np.cumsum([0, *map(len, pieces)]).tolist()


# --- JSON -------------------------------------------------------------------------------------

PATTERNS = {
    JsonKind.TEXT: rb'([^"\\\x00-\x1f]*)',
    JsonKind.NUMBER: rb"(-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)",
    JsonKind.INTEGER: rb"(-?(?:0|[1-9][0-9]{0,17}))",
    JsonKind.BOOLEAN: rb"(true|false)",
}
USUAL = {
    JsonKind.TEXT: [b"", b"a", b"\xc3\xa9", b"a,b", b"x" * 30],
    JsonKind.NUMBER: [b"0", b"-1.5", b"1e5", b"2E-3", b"10.25e+7"],
    JsonKind.INTEGER: [b"0", b"-0", b"7", b"-32768", b"32767", b"999999999999999999"],
    JsonKind.BOOLEAN: [b"true", b"false"],
}
UNUSUAL = [
    *[
        b'"',
        b"\\",
        b"\n",
        b"\x7f",
        b"\xff",
        b"-",
        b"+1",
        b"01",
        b"1.",
        b".5",
        b"1e",
        b"1e+",
        b"--1",
        b"1.2.3",
    ],
    *[
        b"1000000000000000000",
        b"99999999999999999999",
        b"32768",
        b"-32769",
        b"tru",
        b"True",
        b"null",
        b"falsey",
    ],
]


@st.composite
def objects(draw):
    """Cells, what stands behind the last, and values that fit them, or nearly."""
    kinds = draw(st.lists(st.sampled_from(list(JsonKind)), min_size=1, max_size=4))
    cells, quote = [], b""
    for number, kind in enumerate(kinds):
        opened = b'"' if kind is JsonKind.TEXT else b""
        before = quote + (b"," if number else b"{") + b'"k%d":' % number + opened
        limits = draw(st.sampled_from([(-32768, 32767), (-(2**63), 2**63 - 1)]))
        cells.append(JsonCell(before, kind, draw(st.booleans()), *limits))
        quote = opened
    behind = quote + b"}"
    values = []
    for _ in range(draw(st.integers(0, 8))):
        texts = [draw(st.sampled_from(USUAL[cell.kind])) for cell in cells]
        if draw(st.booleans()):
            texts[draw(st.integers(0, len(texts) - 1))] = draw(st.sampled_from(UNUSUAL))
        value = b"".join(cell.before + text for cell, text in zip(cells, texts, strict=True)) + behind
        values.append(value[: draw(st.just(len(value)) | st.integers(0, len(value)))])
    return cells, behind, draw(st.just(values) | st.just([None, *values]))


def placed(values):
    """The values one behind the other, where each begins, and its length."""
    lengths = [-1 if value is None else len(value) for value in values]
    starts = np.cumsum([0, *(max(length, 0) for length in lengths)])[: len(values)]
    return guarded(b"".join(value or b"" for value in values)), starts, np.array(lengths, np.int64)


def expected_contents(cells, behind, value):
    """What each cell holds; None if the value is not of these cells."""
    pattern = b"".join(re.escape(cell.before) + PATTERNS[cell.kind] for cell in cells) + re.escape(behind)
    found = re.fullmatch(pattern, value)
    if found is None:
        return None
    for cell, text in zip(cells, found.groups(), strict=True):
        if cell.kind is JsonKind.INTEGER and not cell.least <= int(text) <= cell.most:
            return None
    return found.groups()


@settings(max_examples=examples(200))
@given(objects())
def test_objects_are_those_of_the_grammar_and_hold_what_it_says(given_objects):
    cells, behind, values = given_objects
    fitting, found = kernels.read_objects(*placed(values), cells, behind)
    expected = [None if value is None else expected_contents(cells, behind, value) for value in values]
    assert fitting.tolist() == [each is not None for each in expected]
    for number, (cell, room) in enumerate(zip(cells, found, strict=True)):
        for row, texts in enumerate(expected):
            if texts is None:
                continue
            if room.numbers is not None:
                assert room.numbers[row] == int(texts[number])
            elif not cell.wanted:
                assert room.octets is None
            elif room.bounds is None:
                assert room.octets[row] == (texts[number] == b"true")
            else:
                assert room.octets[room.bounds[row] : room.bounds[row + 1]].tobytes() == texts[number]


def test_no_byte_but_a_digit_is_taken_for_one_at_any_place():
    cells, digits = [JsonCell(b"", JsonKind.INTEGER, True, -(2**63), 2**63 - 1)], b"1234567890123456"
    for at in range(1, len(digits)):
        others = [bytes([byte]) for byte in range(256) if byte not in b"0123456789"]
        values = [digits[:at] + other + digits[at + 1 :] for other in others]
        fitting, _ = kernels.read_objects(*placed(values), cells, b"")
        assert not fitting.any(), at


def test_integers_of_any_length_are_what_they_say_wherever_they_end():
    cell = [JsonCell(b"", JsonKind.INTEGER, True, -(2**63), 2**63 - 1)]
    for length in range(1, 19):
        for sign in (b"", b"-"):
            values = [sign + bytes([digit, *b"9081726354536271"[: length - 1]]) for digit in b"123456789"]
            for behind in (b"", b"}", b',"k":1}        '):
                taken, found = kernels.read_objects(*placed([each + behind for each in values]), cell, behind)
                assert taken.all()
                assert found[0].numbers.tolist() == [int(each) for each in values]


def test_no_byte_that_ends_a_text_is_missed_at_any_place():
    cell = [JsonCell(b"", JsonKind.TEXT, True)]
    text = bytes(range(128, 145))
    for at in range(len(text)):
        others = [bytes([byte]) for byte in range(256)]
        values = [text[:at] + other + text[at + 1 :] + b'"' for other in others]
        fitting, found = kernels.read_objects(*placed(values), cell, b'"')
        assert [byte for byte in range(256) if not fitting[byte]] == [*range(32), *b'"', *b"\\"]
        kept = [each for each, fits in zip(values, fitting, strict=True) if fits]
        bounds, octets = found[0].bounds, found[0].octets
        texts = [octets[bounds[row] : bounds[row + 1]].tobytes() for row in np.flatnonzero(fitting)]
        assert texts == [each[:-1] for each in kept]


def test_integers_end_where_their_type_or_eighteen_digits_do():
    def fitting(text, bits):
        cell = JsonCell(b"", JsonKind.INTEGER, True, -(1 << bits - 1), (1 << bits - 1) - 1)
        taken, found = kernels.read_objects(*placed([text]), [cell], b"")
        assert not taken[0] or found[0].numbers[0] == int(text)
        return bool(taken[0])

    assert all(fitting(text, 64) for text in (b"999999999999999999", b"-999999999999999999", b"0", b"-0"))
    assert not any(fitting(text, 64) for text in (b"1000000000000000000", b"-9223372036854775809", b"9" * 40))
    assert [fitting(text, 16) for text in (b"32767", b"32768", b"-32768", b"-32769")] == [True, False] * 2


def test_rows_that_are_too_few_are_refused_before_anything_is_written():
    parts = np.zeros((kernels.PARTS, 1), np.int64)
    data = guarded(record(0, 0, None, b"x", []) * 2)
    with pytest.raises(ValueError, match="9 rows of 2 numbers"):
        kernels.lay_out_records(data, 0, len(data), 2, 0, 0, parts)


# --- texts ------------------------------------------------------------------------------------

texts = st.binary(max_size=20) | st.sampled_from(
    [b"", b"a", b"ab", b"user-1", b"user-2", b"x" * 8, b"x" * 16]
)


@given(st.lists(texts, max_size=60))
def test_texts_are_numbered_as_they_first_occur_with_the_hash_that_state_is_ordered_by(several):
    bounds = np.cumsum([0, *map(len, several)]).astype(np.int32)
    ids, firsts, hashes = kernels.number_texts(guarded(b"".join(several)), bounds)
    distinct = list(dict.fromkeys(several))
    assert ids.tolist() == [distinct.index(text) for text in several]
    assert firsts.tolist() == [several.index(text) for text in distinct]
    assert hashes.tolist() == hash_columns([pa.array(distinct, pa.binary())], len(distinct)).tolist()


def test_many_distinct_texts_find_their_places():
    several = [b"%d" % (number * 7919 % 50_000) for number in range(120_000)]
    bounds = np.cumsum([0, *map(len, several)]).astype(np.int32)
    ids, firsts, hashes = kernels.number_texts(np.frombuffer(b"".join(several), np.uint8), bounds)
    assert ids.tolist() == [number % 50_000 for number in range(120_000)]
    assert firsts.tolist() == list(range(50_000))
    assert len(set(hashes.tolist())) == 50_000
