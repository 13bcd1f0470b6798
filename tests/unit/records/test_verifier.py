import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptionError
from headrace.records import BatchVerifier, stamp
from headrace.testing.batches import batch


def stretch(*sizes: int, first: int = 0) -> bytearray:
    """Stamped batches with that many records each."""
    data, offset = bytearray(), first
    for size in sizes:
        each = batch(*[b"v" * size] * size)
        stamp(each, 0, offset, 0)
        data += each
        offset += size
    return data


def feed_in_pieces(verifier, data, cuts):
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        verifier.feed(data[start:end])


@given(cuts=st.lists(st.integers(0, 900), max_size=8).map(sorted))
def test_intact_batches_pass_however_they_are_cut_into_chunks(cuts):
    data = stretch(3, 1, 5, first=10)
    verifier = BatchVerifier(next_offset=10)
    feed_in_pieces(verifier, data, [min(cut, len(data)) for cut in cuts])
    assert (verifier.next_offset, verifier.position) == (19, len(data))


@given(flip=st.integers(0, 10_000), cuts=st.lists(st.integers(0, 900), max_size=5).map(sorted))
def test_a_flipped_bit_anywhere_stops_the_stream_at_its_batch(flip, cuts):
    data = stretch(3, 1, 5)
    second, third = len(stretch(3)), len(stretch(3, 1))
    flip %= len(data)
    data[flip] ^= 0x40
    verifier = BatchVerifier(next_offset=0)
    feeding = [min(cut, len(data)) for cut in cuts]
    in_length = any(start + 8 <= flip < start + 12 for start in (0, second, third))
    try:
        feed_in_pieces(verifier, data, feeding)
    except CorruptionError:
        pass
    else:
        # A longer length swallows what follows as one batch that is cut off: its reader discards it.
        assert in_length
    assert verifier.position == max(start for start in (0, second, third) if start <= flip)


def test_a_batch_cut_off_at_the_end_is_no_error():
    data = stretch(2, 2)
    verifier = BatchVerifier(next_offset=0)
    verifier.feed(data[:-1])
    assert verifier.next_offset == 2


def test_an_offset_out_of_place_is_damage_even_with_a_right_crc():
    with pytest.raises(CorruptionError, match="in its place"):
        BatchVerifier(next_offset=5).feed(stretch(1, first=6))


def test_gaps_pass_where_compaction_leaves_them_but_never_a_step_back():
    verifier = BatchVerifier(next_offset=5, gaps=True)
    verifier.feed(stretch(1, first=8))
    assert verifier.next_offset == 9
    with pytest.raises(CorruptionError):
        verifier.feed(stretch(1, first=8))
