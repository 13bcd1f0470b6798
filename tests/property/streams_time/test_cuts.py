"""Batches that end at cuts: whatever is visible of a source, and whatever the limits, nothing is torn."""

import json
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import RequestError
from headrace.streams.feed.cuts import Cut, at_cut, last_cut, parse_cut, thinned
from headrace.streams.feed.joint import JointPosition
from headrace.streams.offsets import TopicPosition, admit

TOPICS = ("accounts", "entries")
places = st.tuples(st.sampled_from(TOPICS), st.integers(0, 2))
transactions = st.lists(st.dictionaries(places, st.integers(1, 5), min_size=1), min_size=1, max_size=15)


def position(topic, ends):
    following = {partition: ends.get((topic, partition), 0) for partition in range(3)}
    return TopicPosition(topic=topic, topic_id=uuid.UUID(int=1), next=following)


def cuts_of(written):
    """The cut behind each transaction, and what can be read then; a marker stands behind its records."""
    ends, states, cuts = {}, [], []
    for number, each in enumerate(written):
        for place, count in each.items():
            ends[place] = ends.get(place, 0) + count + (1 if place in ends else 0)
        states.append(dict(ends))
        offsets = {topic: {p: end for (name, p), end in ends.items() if name == topic} for topic in TOPICS}
        cuts.append(Cut(number * 2, offsets))
    return cuts, states


@given(transactions, st.data())
def test_every_batch_ends_behind_a_whole_transaction_and_the_last_is_reached(written, data):
    cuts, states = cuts_of(written)
    whole = [{topic: position(topic, state).next for topic in TOPICS} for state in [{}, *states]]
    start = {topic: position(topic, {}) for topic in TOPICS}
    seen = {place: 0 for state in states for place in state}
    for _ in range(data.draw(st.integers(0, 6))):
        for place, end in states[-1].items():  # partitions become visible on their own
            seen[place] = data.draw(st.integers(seen[place], end))
        batch(cuts, start, seen, data.draw(st.none() | st.integers(1, 8)))
        assert {topic: each.next for topic, each in start.items()} in whole
    while batch(cuts, start, states[-1], 3):
        assert {topic: each.next for topic, each in start.items()} in whole
    assert {topic: each.next for topic, each in start.items()} == whole[-1]


def batch(cuts, start, seen, most):
    """Moves on as a planner does; whether anything moved."""
    latest = {topic: at_least(position(topic, seen), start[topic]) for topic in TOPICS}
    limit = {topic: admit(start[topic], latest[topic], most) for topic in TOPICS}
    found = last_cut(cuts, start, latest, limit)
    if found is None:
        return False
    ends = {topic: at_cut(found, start[topic], latest[topic]) for topic in TOPICS}
    assert all(latest[topic].next[p] >= end for topic in TOPICS for p, end in ends[topic].next.items())
    moved = ends != start
    start.update(ends)
    return moved


def at_least(one, other):
    return replace(one, next={each: max(end, other.next[each]) for each, end in one.next.items()})


@given(transactions)
def test_a_batch_takes_the_last_cut_that_fits_and_one_at_least(written):
    cuts, states = cuts_of(written)
    start = {topic: position(topic, {}) for topic in TOPICS}
    latest = {topic: position(topic, states[-1]) for topic in TOPICS}
    assert last_cut(cuts, start, latest, latest) == cuts[-1]
    assert last_cut(cuts, start, latest, start) == cuts[0]
    some = {topic: position(topic, states[len(states) // 2]) for topic in TOPICS}
    assert last_cut(cuts, start, latest, some) == cuts[len(states) // 2]


@given(st.integers(1, 50), st.integers(1, 60))
def test_of_too_many_cuts_the_newest_stays(count, most):
    cuts = [Cut(number, {}) for number in range(count)]
    left = thinned(cuts, most)
    assert left[-1] == cuts[-1] and left == sorted(left, key=lambda each: each.offset)
    assert len(left) <= max(most, (count + 1) // 2)


def test_a_position_with_cuts_comes_back_from_json():
    at = JointPosition((), {"shop.transaction": 42})
    assert JointPosition.from_json(json.loads(json.dumps(at.to_json()))) == at


def test_records_that_are_no_cuts_are_skipped_or_refused():
    end = {"status": "END", "id": "1", "offsets": {"accounts": {"0": 7, "1": 0}}}
    assert parse_cut("t", 3, json.dumps(end).encode()) == Cut(3, {"accounts": {0: 7, 1: 0}})
    assert parse_cut("t", 3, json.dumps({"schema": {}, "payload": end}).encode()) is not None
    assert parse_cut("t", 3, None) is None
    assert parse_cut("t", 3, b'{"status": "BEGIN", "id": "1"}') is None
    for value in (
        b'{"status": "END", "id": "1"}',
        b"[1]",
        b"no JSON",
        b'{"status": "END", "offsets": {"a": 1}}',
    ):
        with pytest.raises(RequestError, match=r"offset 3 of t is no cut.*transactions="):
            parse_cut("t", 3, value)
