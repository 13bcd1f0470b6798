import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records import Codec, Record, check_batch, decode_batch, encode_batch, filter_batch, stamp

RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp_ms=st.integers(0, 2000),
        key=st.none() | st.binary(max_size=5),
        value=st.none() | st.binary(max_size=5) | st.just(bytes(100)) | st.just(bytes(9000)),
        headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    ),
    min_size=1,
    max_size=12,
)


@given(
    records=RECORDS,
    data=st.data(),
    codec=st.sampled_from(list(Codec)),
    horizon_ms=st.none() | st.integers(0, 10**13),
)
def test_what_stays_is_as_it_was(records, data, codec, horizon_ms):
    batch = encode_batch(records, codec=codec, producer_id=5, producer_epoch=1, base_sequence=7)
    stamp(batch, 0, 700, 0)
    flags = st.lists(st.booleans(), min_size=len(records), max_size=len(records))
    stays = data.draw(flags.filter(any))
    before = check_batch(batch, produced=False)
    thin = filter_batch(before, memoryview(batch), bytes(stays), delete_horizon_ms=horizon_ms)
    header = check_batch(thin, produced=False)
    kept = [record for record, keep in zip(decode_batch(batch), stays, strict=True) if keep]
    assert decode_batch(thin) == kept
    assert header.max_timestamp == max(record.timestamp_ms for record in kept)
    assert header.delete_horizon_ms == horizon_ms
    for name in (
        "base_offset",
        "last_offset_delta",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "codec",
    ):
        assert getattr(header, name) == getattr(before, name)


@pytest.mark.parametrize("horizon_ms", [None, 5000])
def test_the_time_of_the_append_stays(horizon_ms):
    from headrace.records import stamp_append_time

    batch = encode_batch([Record(0, 5, b"k", b"v"), Record(0, 6, b"k", None)])
    stamp_append_time(batch, 0, 99)
    thin = filter_batch(check_batch(batch), batch, b"\1\0", delete_horizon_ms=horizon_ms)
    assert [record.timestamp_ms for record in decode_batch(thin)] == [99]
    assert check_batch(thin, produced=False).max_timestamp == 99
