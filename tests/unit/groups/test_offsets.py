"""Who may commit, and what is forgotten when."""

import struct
from uuid import UUID

import pytest

from headrace.groups import Code
from headrace.groups.classic import ClassicGroup, ClassicMember, ClassicState
from headrace.groups.consumer import ConsumerGroup, ConsumerMember
from headrace.groups.events import OffsetCommitted
from headrace.groups.offsets import (
    OffsetCommitter,
    commit_refusal,
    delete_refusal,
    expired_offsets,
    fetch_refusal,
)

DAY = 86_400_000


def classic_group(state=ClassicState.STABLE, protocol_type="consumer"):
    metadata = struct.pack(">hih", 0, 1, 1) + b"t"
    member = ClassicMember(
        member_id="m",
        instance_id=None,
        client_id="",
        client_host="",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        protocols=(("range", metadata),),
    )
    return ClassicGroup(
        group_id="g", state=state, generation=3, protocol_type=protocol_type, members={"m": member}
    )


def consumer_group():
    member = ConsumerMember(member_id="m", epoch=3, topic_names=frozenset("t"))
    return ConsumerGroup(group_id="g", epoch=3, target_epoch=3, members={"m": member})


def committed(topic="t", commit_ms=0, expire_ms=None):
    return OffsetCommitted(
        group_id="g",
        topic=topic,
        topic_id=UUID(int=1),
        partition=0,
        offset=5,
        leader_epoch=-1,
        metadata="",
        commit_ms=commit_ms,
        expire_ms=expire_ms,
    )


@pytest.mark.parametrize("group", [None, ClassicGroup(group_id="g"), ConsumerGroup(group_id="g")])
def test_outsiders_commit_while_nobody_is_in_the_group(group):
    assert commit_refusal(group, OffsetCommitter()) is Code.NONE


@pytest.mark.parametrize("group", [classic_group(), consumer_group()])
def test_outsiders_do_not_commit_over_the_members_heads(group):
    assert commit_refusal(group, OffsetCommitter()) is Code.UNKNOWN_MEMBER_ID


def test_a_generation_of_a_group_that_is_gone_is_illegal():
    assert commit_refusal(None, OffsetCommitter(member_id="m", generation=3)) is Code.GROUP_ID_NOT_FOUND
    older = OffsetCommitter(member_id="m", generation=3, knows_stale_epoch=False)
    assert commit_refusal(None, older) is Code.ILLEGAL_GENERATION


def test_a_classic_member_commits_in_its_own_generation_only():
    assert commit_refusal(classic_group(), OffsetCommitter(member_id="m", generation=3)) is Code.NONE
    assert (
        commit_refusal(classic_group(), OffsetCommitter(member_id="m", generation=2))
        is Code.ILLEGAL_GENERATION
    )
    assert (
        commit_refusal(classic_group(), OffsetCommitter(member_id="x", generation=3))
        is Code.UNKNOWN_MEMBER_ID
    )


def test_nobody_commits_in_a_generation_that_has_no_assignment_yet():
    group = classic_group(ClassicState.COMPLETING)
    assert commit_refusal(group, OffsetCommitter(member_id="m", generation=3)) is Code.REBALANCE_IN_PROGRESS


def test_members_may_still_commit_while_the_next_generation_is_being_prepared():
    group = classic_group(ClassicState.PREPARING)
    assert commit_refusal(group, OffsetCommitter(member_id="m", generation=3)) is Code.NONE


def test_a_server_side_member_commits_at_its_epoch_only():
    group = consumer_group()
    assert commit_refusal(group, OffsetCommitter(member_id="m", generation=3)) is Code.NONE
    assert commit_refusal(group, OffsetCommitter(member_id="m", generation=2)) is Code.STALE_MEMBER_EPOCH
    old = OffsetCommitter(member_id="m", generation=3, knows_stale_epoch=False)
    assert commit_refusal(group, old) is Code.UNSUPPORTED_VERSION


def test_fetching_checks_members_of_server_side_groups():
    assert fetch_refusal(consumer_group(), None, -1) is Code.NONE
    assert fetch_refusal(consumer_group(), "m", 3) is Code.NONE
    assert fetch_refusal(consumer_group(), "m", 2) is Code.STALE_MEMBER_EPOCH
    assert fetch_refusal(consumer_group(), "x", 3) is Code.UNKNOWN_MEMBER_ID
    assert fetch_refusal(None, "m", 3) is Code.NONE


def test_offsets_of_topics_that_members_read_are_not_deleted():
    for group in (classic_group(), consumer_group()):
        assert delete_refusal(group, "t") is Code.GROUP_SUBSCRIBED_TO_TOPIC
        assert delete_refusal(group, "u") is Code.NONE
    assert delete_refusal(classic_group(protocol_type="connect"), "u") is Code.NON_EMPTY_GROUP
    assert delete_refusal(ClassicGroup(group_id="g"), "t") is Code.NONE
    assert delete_refusal(None, "t") is Code.GROUP_ID_NOT_FOUND


def expired(group, *offsets, idle_since_ms=0, now_ms=8 * DAY):
    known = {(offset.topic, offset.partition): offset for offset in offsets}
    found = expired_offsets(group, known, idle_since_ms=idle_since_ms, retention_ms=7 * DAY, now_ms=now_ms)
    return [event.topic for event in found]


def test_retention_counts_from_when_the_group_became_empty():
    group = ClassicGroup(group_id="g")
    assert expired(group, committed()) == ["t"]
    assert expired(group, committed(), idle_since_ms=2 * DAY) == []


def test_retention_counts_from_a_later_commit():
    assert expired(ClassicGroup(group_id="g"), committed(commit_ms=2 * DAY)) == []


@pytest.mark.parametrize("group", [classic_group(), consumer_group()])
def test_offsets_of_topics_still_read_do_not_expire(group):
    assert expired(group, committed("t"), committed("u")) == ["u"]


def test_a_retention_that_came_with_the_commit_is_kept():
    group = ClassicGroup(group_id="g")
    assert expired(group, committed(expire_ms=DAY), now_ms=DAY) == ["t"]
    assert expired(group, committed(expire_ms=9 * DAY)) == []
