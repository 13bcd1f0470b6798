"""Records of a produced batch: what is wrong is found, by columns as by the reader of single records."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.records import Codec, Record, check_batch, check_records, encode_batch
from headrace.records.batch import seal
from headrace.records.batch_header import HEADER_BYTES
from headrace.records.same_size import is_uniform

INVALID_RECORD, MESSAGE_TOO_LARGE = 87, 10
MIB = 1024 * 1024


def uniform(count, *, key=b"key", value=b"value", every_ms=1, codec=0):
    return encode_batch([Record(0, 1000 + n * every_ms, key, value) for n in range(count)], codec=codec)


def check(batch, **options):
    check_records(check_batch(batch), batch, **{"max_bytes": MIB, **options})


def by_columns(batch, keyed=False):
    header = check_batch(batch)
    return is_uniform(bytes(batch), HEADER_BYTES, header.record_count, keyed=keyed)


@pytest.mark.parametrize("count", [1, 31, 32, 63, 64, 65, 200, 9000])
@pytest.mark.parametrize("every_ms", [0, 1, 3])
@pytest.mark.parametrize("key", [None, b"", b"key"])
def test_records_of_one_size_are_checked_by_columns(count, every_ms, key):
    batch = uniform(count, key=key, every_ms=every_ms)
    assert by_columns(batch)
    check(batch)


@pytest.mark.parametrize("value", [None, b"", b"v" * 70, b"v" * 9000])
def test_values_of_any_length_are_checked_by_columns(value):
    assert by_columns(uniform(40, value=value))


def test_what_does_not_fit_into_columns_is_left_to_the_other_reader():
    rng = random.Random(1)
    batches = [
        encode_batch([Record(0, 1000, b"k", bytes(rng.randint(0, 50))) for _ in range(300)]),
        encode_batch([Record(0, 1000, b"k", b"v", [("name", b"x")]) for _ in range(40)]),
    ]
    for batch in batches:
        assert not by_columns(batch)
        check(batch)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_looked_into(codec):
    check(uniform(600, codec=codec))
    with pytest.raises(RequestError) as refused:
        check(uniform(600, codec=codec, key=None), keyed=True)
    assert refused.value.code == INVALID_RECORD


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_what_expands_beyond_the_bound_is_too_large(codec):
    batch = uniform(40, value=bytes(10_000), codec=codec)
    check(batch, max_bytes=500_000)
    with pytest.raises(RequestError) as refused:
        check(batch, max_bytes=300_000)
    assert refused.value.code == MESSAGE_TOO_LARGE


@given(
    count=st.sampled_from([32, 40, 100, 300]),
    position=st.integers(0, 10_000),
    byte=st.integers(0, 255),
    keyed=st.booleans(),
    sizes=st.sampled_from([(5, 5), (60, 60), (3, 9)]),
)
def test_a_changed_byte_is_judged_alike_by_columns_and_record_by_record(count, position, byte, keyed, sizes):
    """Never is a batch passed by columns that the reader of single records refuses."""
    rng = random.Random(position)
    batch = encode_batch([Record(0, 1000, b"key", bytes(rng.randint(*sizes))) for _ in range(count)])
    batch[HEADER_BYTES + position % (len(batch) - HEADER_BYTES)] = byte
    seal(batch, 0)
    if by_columns(batch, keyed):
        header = check_batch(batch)
        assert _record_by_record(header, batch) == list(range(count))


def _record_by_record(header, batch):
    from aiokafka.record.default_records import DefaultRecordBatch

    return [record.offset for record in DefaultRecordBatch(bytes(batch))]
