"""How far a micro-batch goes, and how its offsets are cut into tasks."""

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.streams.offsets import TopicPosition, admit, ranges

ID = uuid.UUID(int=7)
offsets = st.dictionaries(st.integers(0, 9), st.integers(0, 10**6), max_size=6)


def at(following, topic="orders", topic_id=ID):
    return TopicPosition(topic=topic, topic_id=topic_id, next=following)


@given(offsets)
def test_a_position_survives_the_checkpoint(following):
    position = at(following)
    assert TopicPosition.from_json(json.loads(json.dumps(position.to_json()))) == position


def test_the_text_of_a_position_does_not_depend_on_the_order_of_partitions():
    assert json.dumps(at({1: 5, 0: 3}).to_json()) == json.dumps(at({0: 3, 1: 5}).to_json())


@given(offsets, offsets, st.integers(1, 10**6))
def test_a_batch_never_passes_the_end_goes_forward_and_keeps_its_limit(start, more, limit):
    latest = {each: start.get(each, 0) + more.get(each, 0) for each in {*start, *more}}
    end = admit(at(start), at(latest), limit).next
    taken = {each: end[each] - start.get(each, 0) for each in latest}
    assert end.keys() == latest.keys()
    assert all(0 <= taken[each] <= more.get(each, 0) for each in taken)
    assert all(taken[each] > 0 for each in more if more[each] > 0)
    assert sum(taken.values()) <= limit + len(latest)  # each share is rounded up


def test_without_a_limit_a_batch_takes_everything():
    assert admit(at({0: 1}), at({0: 10**9}), None) == at({0: 10**9})


def test_a_position_of_another_topic_or_an_older_one_of_that_name_is_refused():
    with pytest.raises(RequestError, match="Use a new checkpoint"):
        admit(at({0: 1}), at({0: 5}, topic_id=uuid.UUID(int=8)), None)
    with pytest.raises(RequestError, match=r"'orders'.*'sales'"):
        admit(at({0: 1}), at({0: 5}, topic="sales"), None)


def test_a_log_that_ends_before_what_was_read_has_lost_records():
    with pytest.raises(RequestError, match="orders-0 was read up to offset 9, but the log ends at 5"):
        admit(at({0: 9}), at({0: 5}), None)


@given(offsets, offsets, st.integers(1000, 10**6))
def test_ranges_cover_every_offset_once_and_none_is_too_long(start, more, most):
    end = {each: start.get(each, 0) + more.get(each, 0) for each in {*start, *more}}
    found = list(ranges(at(start), at(end), most))
    for partition in end:
        reached = start.get(partition, 0)
        for span in (each for each in found if each.partition == partition):
            assert span.start == reached
            assert 0 < span.end - span.start <= most
            reached = span.end
        assert reached == end[partition]
