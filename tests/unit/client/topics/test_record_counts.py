"""How many records stand between two offsets."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.topics.record_counts import Gaps

# Batches as they lie on a log: offsets before it without a record, offsets it spans, records left in it.
batches = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 5)), max_size=10)


@given(st.integers(0, 5), batches, st.integers(0, 3), st.integers(0, 60), st.integers(0, 60))
def test_every_offset_is_a_record_or_in_a_gap(first, given_batches, behind, one, other):
    gaps, at, held = Gaps(first, first), first, set()
    for before, span, records in given_batches:
        base, records = at + before, min(span, records)
        gaps.found(base, base + span, records)
        held |= set(range(base, base + records))  # which of a batch are left is not known
        at = base + span
    end = at + behind
    gaps.ended(end)
    assert gaps.to == end
    start, stop = sorted((first + one % (end - first + 1), first + other % (end - first + 1)))
    assert gaps.count(start, stop) == len([each for each in held if start <= each < stop])
    assert gaps.count(first, end + 7) == len(held) + 7, "what is not known counts as a record each"


def test_a_range_may_begin_inside_of_a_batch():
    gaps = Gaps(7, 7)
    gaps.found(5, 10, 5)
    gaps.ended(11)
    assert (gaps.count(7, 11), gaps.count(8, 9)) == (3, 1)
