"""Record batches as Arrow columns: the same records that the record-by-record decoder finds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import CorruptionError
from headrace.records import (
    Codec,
    Record,
    check_batch,
    columns,
    decode_batch,
    encode_batch,
    stamp,
    stamp_append_time,
)
from headrace.records.columns import COLUMNS, decode_columns

sizes = st.sampled_from([0, 1, 11, 12, 13, 62, 63, 64, 127, 128, 8190, 8192, 20_000])
blobs = st.none() | sizes.map(lambda size: bytes(range(256)) * (size // 256) + bytes(size % 256))
headers = st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3)
records = st.builds(
    Record,
    offset=st.just(0),
    timestamp_ms=st.integers(0, 2**42),
    key=blobs | st.binary(max_size=20),
    value=blobs | st.binary(max_size=20),
    headers=headers,
)
batches = st.lists(
    st.tuples(st.lists(records, min_size=1, max_size=5), st.sampled_from(list(Codec))), max_size=4
)


def stamped(contents, *, first=1000, gap=7):
    """Consecutive batches with gaps between their offsets, as compaction leaves them."""
    buffer, offset = bytearray(), first
    for content, codec in contents:
        batch = encode_batch(content, codec=codec)
        stamp(batch, 0, offset, 0)
        buffer += batch
        offset += len(content) + gap
    return bytes(buffer)


def one_by_one(buffer):
    position, found = 0, []
    while position < len(buffer):
        found += decode_batch(buffer, position)
        position += check_batch(buffer, position, produced=False).size_bytes
    return found


def rows(columns):
    times = columns["timestamp"].cast("int64").to_pylist()
    parts = [columns["key"].to_pylist(), columns["value"].to_pylist(), columns["headers"].to_pylist()]
    return [
        Record(offset, time, key, value, [(each["key"], each["value"]) for each in found])
        for offset, time, key, value, found in zip(columns["offset"].to_pylist(), times, *parts, strict=True)
    ]


@given(batches)
@settings(deadline=None)
def test_columns_are_what_the_records_are_one_by_one(contents):
    buffer = stamped(contents)
    expected = [record._replace(headers=list(record.headers)) for record in one_by_one(buffer)]
    assert rows(decode_columns(buffer)) == expected


def test_a_range_leaves_out_what_lies_before_and_behind():
    content = [Record(0, 0, None, b"%d" % number) for number in range(10)]
    buffer = stamped([(content, Codec.NONE)], first=100)
    assert decode_columns(buffer, start_offset=103, end_offset=106)["value"].to_pylist() == [b"3", b"4", b"5"]
    assert decode_columns(buffer, start_offset=110).num_rows == 0
    assert decode_columns(buffer, end_offset=100).num_rows == 0


def test_only_the_columns_asked_for_are_made():
    buffer = stamped([([Record(0, 0, b"k", b"v")], Codec.NONE)])
    assert decode_columns(buffer, columns=("offset", "value")).schema.names == ["offset", "value"]
    assert decode_columns(buffer).schema.names == list(COLUMNS)


def test_append_time_is_the_time_of_every_record():
    batch = encode_batch([Record(0, 5, None, b"a"), Record(0, 6, None, b"b")])
    stamp_append_time(batch, 0, 77)
    assert decode_columns(batch)["timestamp"].cast("int64").to_pylist() == [77, 77]


def test_markers_of_transactions_are_no_records():
    marker = encode_batch([Record(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\0")], control=True, transactional=True)
    assert decode_columns(marker).num_rows == 0


def test_no_bytes_are_no_records():
    assert decode_columns(b"").num_rows == 0


def test_a_batch_that_is_cut_is_refused():
    buffer = stamped([([Record(0, 0, None, b"value")], Codec.NONE)])
    for size in range(1, len(buffer)):
        with pytest.raises(CorruptionError):
            decode_columns(buffer[:size])


def test_every_flipped_bit_that_no_checksum_caught_is_refused_or_harmless_and_never_another_error():
    content = [Record(0, n, b"key", b"value" * 14, [("h", b"x")]) for n in range(2)]
    clean = stamped([(content, Codec.NONE)])
    refused = 0
    for bit in range(8 * 61, 8 * len(clean)):
        damaged = bytearray(clean)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert decode_columns(damaged).num_rows == 2
        except CorruptionError:
            refused += 1
    assert refused > 2 * 8 * 5  # the lengths of record, key, value and header, and the headers' count


@pytest.mark.parametrize("length", [-2, 0, 2, 4, 100])
def test_a_value_that_does_not_fill_its_record_is_refused(length):
    buffer = bytearray(stamped([([Record(0, 0, None, b"abc")], Codec.NONE)]))
    assert buffer[-5] == 3 << 1  # the value's length, zigzag: before the value and the count of headers
    buffer[-5] = length << 1 if length >= 0 else 3
    with pytest.raises(CorruptionError):
        decode_columns(buffer, columns=("offset", "value"))


def test_more_records_claimed_than_there_are_is_refused():
    buffer = bytearray(stamped([([Record(0, 0, None, b"value")], Codec.NONE)]))
    buffer[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(CorruptionError):
        decode_columns(buffer)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_batch_that_claims_more_records_than_it_can_hold_gets_no_memory_for_them(codec):
    batch = encode_batch([Record(0, 0, b"k", b"v")], codec=codec)
    batch[57:61] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(CorruptionError, match="too few for 2147483647 records"):
        decode_columns(batch)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_more_bytes_than_a_column_has_places_for_are_refused(monkeypatch, codec):
    batch = encode_batch([Record(0, 0, b"k", b"v" * 1000)], codec=codec)
    monkeypatch.setattr(columns, "_MAX_BYTES", 900)
    with pytest.raises(CorruptionError, match="too large to read at once"):
        decode_columns(batch)
