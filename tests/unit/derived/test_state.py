"""Where a follower begins: at its position, or by comparing all rows with the log, and why."""

from dataclasses import replace

import pytest

from headrace.derived.state import FollowState, TopicFacts, decide_start, parse_state
from headrace.errors import CorruptionError

FACTS = TopicFacts(
    topic_id="t", starts={0: 0, 1: 0}, ends={0: 10, 1: 20}, goal={0: 9, 1: 20}, tombstones_ms=86_400_000
)
STORED = FollowState(topic="orders", topic_id="t", owner="first", positions={0: 5, 1: 20}, at_ms=1_000)


def start(stored, facts=FACTS, *, is_empty=False, now_ms=2_000):
    return decide_start(stored, facts, topic="orders", owner="me", is_empty=is_empty, now_ms=now_ms)


def test_a_state_survives_its_encoding():
    state = replace(STORED, building={0: 7}, rebuilt="x")
    assert parse_state(state.to_json()) == state


def test_a_state_that_is_damaged_is_refused():
    with pytest.raises(CorruptionError, match="follow rebuild"):
        parse_state(b'{"topic": 1}')


def test_an_empty_target_is_built_from_the_beginning_up_to_a_whole_transaction():
    begun = start(None, is_empty=True)
    assert not begun.repair and begun.state.positions == FACTS.starts
    assert begun.state.building == FACTS.goal and begun.state.is_building


def test_building_ends_when_every_partition_is_there():
    state = start(None, is_empty=True).state.moved({0: 9}, 0)
    assert state.is_building and state.building
    state = state.moved({1: 20}, 0)
    assert not state.is_building and state.building == {}


def test_a_follower_goes_on_from_its_position_under_its_own_name():
    begun = start(STORED)
    assert not begun.repair and begun.state == replace(STORED, owner="me")


@pytest.mark.parametrize(
    ("stored", "facts", "now_ms", "why"),
    [
        (None, FACTS, 0, "rows but no position"),
        (replace(STORED, topic="other"), FACTS, 0, "reflects the topic other"),
        (replace(STORED, topic_id="old"), FACTS, 0, "created again"),
        (replace(STORED, positions={0: 11}), FACTS, 0, "lost records"),
        (replace(STORED, positions={7: 0}), FACTS, 0, "lost records"),
        (STORED, replace(FACTS, starts={0: 6, 1: 0}), 0, "removed from the log"),
        (STORED, FACTS, 1_000 + 86_400_000, "longer than the topic keeps deletes"),
        (replace(STORED, positions={}, building={0: 3}), FACTS, 0, "not finished"),
    ],
)
def test_a_target_whose_position_leads_nowhere_is_compared_with_the_log(stored, facts, now_ms, why):
    begun = start(stored, facts, now_ms=now_ms)
    assert begun.repair and why in begun.why
    again = start(begun.state, facts, now_ms=now_ms)  # after a death before the end
    assert again.repair and "not finished" in again.why


def test_a_follower_that_was_away_for_long_but_missed_nothing_goes_on():
    assert not start(replace(STORED, positions=FACTS.ends), now_ms=10**12).repair
    assert not start(STORED, replace(FACTS, tombstones_ms=None), now_ms=10**12).repair
