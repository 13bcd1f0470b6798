"""How many bytes offsets take, and where a micro-batch is cut by them."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from headrace.streams.feed.batch_sizes import Sizes, within
from headrace.streams.offsets import TopicPosition


def at(following):
    return TopicPosition(topic="orders", topic_id=uuid.UUID(int=7), next=following)


def sizes(start, *batches, end=1000):
    found = Sizes(start, end)
    for batch in batches:
        found.add(*batch)
    return found


def test_bytes_are_exact_at_the_ends_of_batches_and_spread_evenly_inside():
    found = sizes(10, (10, 12, 100), (12, 16, 400))
    assert [found.before(offset) for offset in (10, 11, 12, 13, 16)] == [0, 50, 100, 200, 500]


def test_of_a_batch_that_reaches_beyond_only_what_lies_between_counts():
    found = sizes(8, (4, 12, 800), end=10)
    assert (found.bytes, found.reached) == (200, 10)


def test_offsets_that_compaction_left_without_a_record_take_their_share_of_the_batch_behind_them():
    found = sizes(0, (0, 2, 20), (6, 8, 40))
    assert (found.before(2), found.before(8)) == (20, 60)


def test_a_batch_that_was_seen_before_is_not_counted_again():
    assert sizes(0, (0, 4, 100), (0, 4, 100), (4, 5, 7)).bytes == 107


def test_what_was_not_looked_at_is_taken_to_be_as_large_as_what_was():
    found = sizes(0, (0, 4, 100))
    found.skip_to(3)
    assert (found.before(4), found.before(8)) == (100, 200)
    assert Sizes(5, 9).before(9) == 0


def test_offsets_that_are_gone_take_nothing():
    found = Sizes(0, 60)
    found.skip_to(50)
    found.add(50, 51, 1000)
    assert (found.before(50), found.before(51)) == (0, 1000)


def test_partitions_are_cut_at_the_same_share_of_what_waits():
    found = {0: sizes(0, (0, 100, 1000), end=100), 1: sizes(40, (40, 60, 1000), end=60)}
    assert within(at({0: 0, 1: 40}), at({0: 100, 1: 60}), found, 1000) == at({0: 50, 1: 50})
    assert within(at({0: 0, 1: 40}), at({0: 100, 1: 60}), found, 2000) == at({0: 100, 1: 60})


def test_each_partition_with_something_waiting_gets_one_offset_however_large():
    found = {0: sizes(0, (0, 5, 5000), end=5), 1: sizes(0, (0, 5, 10), end=5)}
    assert within(at({0: 0, 1: 0, 2: 3}), at({0: 5, 1: 5, 2: 3}), found, 10) == at({0: 1, 1: 1, 2: 3})


def test_once_the_limit_was_looked_at_nothing_is_admitted_that_was_not():
    found = {0: sizes(0, (0, 100, 900), end=100), 1: sizes(0, (0, 10, 200), end=100)}
    assert within(at({0: 0, 1: 0}), at({0: 100, 1: 100}), found, 1000) == at({0: 10, 1: 10})


batches = st.lists(st.tuples(st.integers(1, 50), st.integers(61, 5000)), min_size=1, max_size=20)


@given(st.dictionaries(st.integers(0, 3), batches, min_size=1), st.integers(1, 100_000))
def test_what_is_admitted_keeps_the_limit_or_is_one_offset_a_partition(logs, limit):
    found, ends = {}, {}
    for partition, lengths in logs.items():
        found[partition], ends[partition] = Sizes(0, sum(count for count, _ in lengths)), 0
        for count, size in lengths:
            found[partition].add(ends[partition], ends[partition] + count, size)
            ends[partition] += count
    cut = within(at({}), at(ends), found, limit).next
    assert all(0 < cut[each] <= ends[each] for each in ends)
    taken = sum(found[each].before(cut[each]) for each in ends)
    assert taken <= limit or set(cut.values()) == {1}
    more = {each: min(ends[each], cut[each] + 1) for each in ends}
    if cut != ends and sum(found[each].bytes for each in ends) > limit:
        assert sum(found[each].before(more[each]) for each in ends) > limit, "all that fits"
