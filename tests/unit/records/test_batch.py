import pytest

from headrace.errors import CorruptionError, RequestError
from headrace.records import check_batch, decode_batch, read_header, stamp, stamp_append_time
from headrace.testing.batches import batch


def test_an_intact_batch_passes_and_tells_its_header():
    header = check_batch(batch(b"a", b"b", b"c", timestamp_ms=42))
    assert (header.record_count, header.last_offset_delta, header.max_timestamp) == (3, 2, 42)


def test_a_flip_of_any_bit_that_the_crc_covers_is_noticed():
    good = batch(b"value")
    for position in range(16, len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x10
        with pytest.raises(CorruptionError):
            check_batch(bad)


@pytest.mark.parametrize("length", [0, 1, 60])
def test_fewer_bytes_than_a_header_are_refused(length):
    with pytest.raises(CorruptionError, match="61 bytes"):
        check_batch(batch(b"v")[:length], produced=False)
    with pytest.raises(RequestError, match="less than a header"):
        check_batch(batch(b"v")[:length])


def test_every_cut_of_a_batch_is_refused():
    good = batch(b"value")
    for length in range(len(good)):
        with pytest.raises(CorruptionError):
            check_batch(good[:length], produced=False)
        with pytest.raises(RequestError):
            check_batch(good[:length])


def test_the_old_formats_are_refused_with_advice():
    old = batch(b"v")
    old[16] = 1
    with pytest.raises(RequestError, match=r"format 1.*newer than"):
        check_batch(old)
    with pytest.raises(CorruptionError, match=r"format 1.*newer than"):
        check_batch(old, produced=False)


def test_a_producers_batch_begins_at_offset_0():
    moved = batch(b"v")
    stamp(moved, 0, 700, 0)
    with pytest.raises(RequestError, match="begins at 0"):
        check_batch(moved)
    assert check_batch(moved, produced=False).base_offset == 700


def test_a_negative_length_is_refused():
    bad = batch(b"v")
    bad[8:12] = b"\xff\xff\xff\xff"
    with pytest.raises(CorruptionError, match="claims"):
        check_batch(bad)


def test_a_batch_is_found_at_a_position():
    two = batch(b"first") + batch(b"second")
    second = read_header(two).size_bytes
    check_batch(two, second)
    assert decode_batch(two, second)[0].value == b"second"


def test_stamping_the_offset_leaves_the_crc_right():
    stamped = batch(b"a", b"b")
    stamp(stamped, 0, 700, 0)
    assert check_batch(stamped, produced=False).leader_epoch == 0
    assert [record.offset for record in decode_batch(stamped)] == [700, 701]


def test_append_time_replaces_the_time_of_every_record():
    stamped = batch(b"a", b"b", timestamp_ms=5)
    stamp_append_time(stamped, 0, 99)
    assert check_batch(stamped).is_append_time
    assert {record.timestamp_ms for record in decode_batch(stamped)} == {99}
