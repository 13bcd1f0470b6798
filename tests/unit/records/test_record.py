import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptionError
from headrace.records import (
    Codec,
    Record,
    check_batch,
    decode_batch,
    encode_batch,
    read_header,
    rewrite_batch,
)
from headrace.records.batch import seal

RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.integers(0, 2**45),
        key=st.none() | st.binary(max_size=30),
        value=st.none() | st.binary(max_size=300),
        headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


@given(records=RECORDS, codec=st.sampled_from(list(Codec)))
def test_what_is_encoded_is_decoded(records, codec):
    decoded = decode_batch(encode_batch(records, codec=codec))
    assert decoded == [record._replace(offset=delta) for delta, record in enumerate(records)]


@given(records=RECORDS)
def test_our_batches_are_those_that_another_client_builds(records):
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for delta, record in enumerate(records):
        builder.append(delta, record.timestamp_ms, record.key, record.value, list(record.headers))
    theirs = bytes(builder.build())
    assert bytes(encode_batch(records)) == theirs


@given(records=RECORDS)
def test_another_client_reads_our_batches(records):
    theirs = DefaultRecordBatch(bytes(encode_batch(records, codec=Codec.LZ4)))
    assert theirs.validate_crc()
    assert [record.value for record in theirs] == [record.value for record in records]


def test_a_rewritten_batch_keeps_its_place_and_the_times_of_what_is_left():
    batch = encode_batch(
        [Record(0, 100 + n, b"k%d" % n, b"v") for n in range(5)], producer_id=7, base_sequence=3
    )
    header = read_header(batch)._replace(base_offset=40, leader_epoch=0)
    kept = [record._replace(offset=40 + record.offset) for record in decode_batch(batch)][1:3]
    smaller = rewrite_batch(header, kept)
    found = check_batch(smaller, produced=False)
    assert (found.base_offset, found.last_offset_delta, found.record_count) == (40, 4, 2)
    assert (found.producer_id, found.base_sequence, found.max_timestamp) == (7, 3, 102)
    assert decode_batch(smaller) == kept


def test_a_delete_horizon_is_carried_by_the_batch_and_the_times_stay():
    batch = encode_batch([Record(0, 100, b"k", None)])
    marked = rewrite_batch(read_header(batch), decode_batch(batch), delete_horizon_ms=5000)
    assert read_header(marked).delete_horizon_ms == 5000
    assert decode_batch(marked)[0].timestamp_ms == 100


def test_records_that_do_not_fit_their_batch_are_refused():
    batch = encode_batch([Record(0, 1, b"k", b"v")])
    batch[61] = 0x7E  # the record claims 63 bytes
    seal(batch, 0)
    with pytest.raises(CorruptionError, match="records of the batch"):
        decode_batch(batch)
