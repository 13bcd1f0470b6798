"""Positions of the feed, batch after batch: nothing skipped, nothing twice, limits held, JSON and back."""

import itertools
import json
import uuid

from hypothesis import example, given
from hypothesis import strategies as st

from headrace.streams.event_time import PartitionTime
from headrace.streams.feed.batch_sizes import Sizes, within
from headrace.streams.feed.positions import (
    FeedPosition,
    Heartbeat,
    SilenceMeter,
    feed_ranges,
    next_position,
)
from headrace.streams.offsets import TopicPosition, admit

TOPIC_ID = uuid.UUID(int=7)
partitions = st.integers(0, 3)
steps = st.lists(
    st.tuples(
        st.dictionaries(partitions, st.integers(0, 500), max_size=4),  # what arrives where
        st.integers(0, 20_000_000),  # and how long it is then silent
    ),
    min_size=1,
    max_size=12,
)


def position(ends):
    return TopicPosition(topic="t", topic_id=TOPIC_ID, next=dict(ends))


def admitted(start, latest, max_records, max_bytes, sizes):
    """As a planner would, on a log on which each record is a batch of its own."""
    end = admit(start, latest, max_records)
    if max_bytes is None:
        return end
    begins = {each: start.next.get(each, 0) for each in end.next}
    seen = {each: Sizes(begins[each], last) for each, last in end.next.items() if last > begins[each]}
    for each, found in seen.items():
        for offset in range(found.start, end.next[each]):
            found.add(offset, offset + 1, sizes[each])
    return within(start, end, seen, max_bytes)


@example([({}, 0), ({0: 0, 1: 0}, 10_000_000)], None, None, dict.fromkeys(range(4), 1.0))
@given(
    steps,
    st.none() | st.integers(1, 300),
    st.none() | st.integers(1, 5000),
    st.fixed_dictionaries({each: st.floats(1, 100) for each in range(4)}),
)
def test_every_offset_is_in_exactly_one_batch_and_limits_hold(arrivals, max_records, max_bytes, sizes):
    ends, read, meter, now = {0: 0}, {}, SilenceMeter(), 0
    at = FeedPosition.first(position(ends), "run")
    for arrived, silence in arrivals:
        for partition, count in arrived.items():
            ends[partition] = ends.get(partition, 0) + count
        now += silence
        times = {each: PartitionTime(at.next.get(each, 0)) for each in ends}
        following = next_position(
            at,
            times,
            position(ends),
            meter.observe(at, position(ends), now),
            admitted=admitted(at.position, position(ends), max_records, max_bytes, sizes),
            idle_after_us=10_000_000,
            heartbeat=Heartbeat(interval_us=1_000_000, until_us=60_000_000),
        )
        if following is at:
            continue
        assert FeedPosition.from_json(json.loads(json.dumps(following.to_json()))) == following
        assert following.start == at.next
        spans = feed_ranges(following)
        assert spans
        assert len({span.partition for span in spans}) == len(spans)
        for span in spans:
            assert span.start == read.get(span.partition, 0)
            assert span.time == times[span.partition]
            read[span.partition] = span.end
        moved = [span for span in spans if span.end > span.start]
        assert not {span.partition for span in moved} & following.idle
        waiting = [each for each in ends if ends[each] > at.next.get(each, 0)]
        assert {span.partition for span in moved} == set(waiting)
        # Rounding up gives each partition at most one more than its share.
        if max_records is not None:
            assert sum(span.end - span.start for span in moved) <= max_records + len(moved)
        if max_bytes is not None:
            taken = sum((span.end - span.start) * sizes[span.partition] for span in moved)
            assert taken <= max_bytes * 1.000001 or all(span.end - span.start == 1 for span in moved)
        if moved:
            assert following.silence_us == 0
        else:
            assert following.next == {each: at.next.get(each, 0) for each in following.next}
            assert following.silence_us >= at.silence_us
        at = following
    assert all(read.get(each, 0) <= end for each, end in ends.items())


@given(st.lists(st.integers(0, 15_000_000), min_size=1, max_size=60))
def test_heartbeats_are_spaced_and_stop_by_themselves(pauses):
    beat = Heartbeat(interval_us=5_000_000, until_us=30_000_000)
    ends, meter, now = position({0: 1}), SilenceMeter(), 0
    at = FeedPosition.first(ends, "run")
    beats = []
    for pause in pauses:
        now += pause
        following = next_position(
            at,
            {0: PartitionTime(5)},
            ends,
            meter.observe(at, ends, now),
            admitted=ends,
            idle_after_us=10_000_000,
            heartbeat=beat,
        )
        if following is not at:
            beats.append(following.silence_us)
        at = following
    assert all(later - earlier >= beat.interval_us for earlier, later in itertools.pairwise(beats))
    assert all(silence <= beat.until_us for silence in beats[:-1])
    assert not beats or beats[0] >= 10_000_000
    if sum(pauses[1:]) >= 10_000_000:
        assert beats
