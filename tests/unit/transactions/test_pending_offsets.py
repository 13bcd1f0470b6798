"""Offsets in transactions as events, and who may commit them."""

from dataclasses import replace
from uuid import UUID

import pytest

from headrace.broker.coordinators.group_table import GroupTable
from headrace.groups import Code
from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer import ConsumerGroup
from headrace.groups.events import OffsetCommitted, PendingOffset, PendingOffsetRemoved
from headrace.groups.journal import decode, encode
from headrace.groups.offsets import OffsetCommitter, commit_refusal

OFFSET = OffsetCommitted(
    group_id="g",
    topic="t",
    topic_id=UUID(int=3),
    partition=2,
    offset=40,
    leader_epoch=0,
    metadata="m",
    commit_ms=5,
    expire_ms=None,
)
PENDING = PendingOffset(producer_id=7, producer_epoch=1, offset=OFFSET)
REMOVED = PendingOffsetRemoved(group_id="g", producer_id=7, topic="t", partition=2)


@pytest.mark.parametrize("event", [PENDING, REMOVED])
def test_an_offset_in_a_transaction_comes_back_from_its_record(event):
    assert decode(*encode(event)) == event


def test_offsets_of_two_producers_and_the_committed_one_have_keys_of_their_own():
    other = replace(PENDING, producer_id=8)
    assert len({encode(event)[0] for event in (PENDING, other, OFFSET)}) == 3


def test_the_end_of_a_transaction_replaces_what_it_left_pending():
    assert encode(PENDING)[0] == encode(REMOVED)[0]
    table = GroupTable()
    table.replay(PENDING, 0)
    entry = table.get("g")
    assert entry.keeps_offsets and not entry.offsets and not entry.leaves_no_trace
    table.replay(REMOVED, 0)
    assert not entry.keeps_offsets


@pytest.mark.parametrize("group", [ClassicGroup(group_id="g"), ConsumerGroup(group_id="g")])
def test_a_producer_need_not_say_for_whom_it_commits(group):
    assert commit_refusal(group, OffsetCommitter(transactional=True)) is Code.NONE


def test_a_producer_that_says_for_whom_it_commits_is_checked():
    who = OffsetCommitter(transactional=True, member_id="m", generation=3)
    assert commit_refusal(ClassicGroup(group_id="g"), who) is Code.UNKNOWN_MEMBER_ID
    assert commit_refusal(ConsumerGroup(group_id="g"), who) is Code.UNKNOWN_MEMBER_ID
    assert commit_refusal(None, who) is Code.ILLEGAL_GENERATION
