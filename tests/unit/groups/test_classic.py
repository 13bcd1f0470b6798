"""Rules of the classic protocol, one by one."""

import struct
from dataclasses import replace

import pytest

from headrace.groups import Code, GroupSettings, classic
from headrace.groups.classic import (
    ClassicGroup,
    ClassicState,
    JoinRequest,
    LeaveRequest,
    MemberRequest,
    SyncRequest,
)

SETTINGS = GroupSettings(group_initial_rebalance_delay_ms=0, group_max_size=3)
NOW = 1_000_000


def subscription(*topics: str, owned: bytes = b"") -> bytes:
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 3, len(topics)) + names + struct.pack(">i", -1) + owned


def join_request(ticket=1, member_id="", new_id="m1", **changes):
    values = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (("range", subscription("t")),),
        "knows_member_id_required": False,
    }
    return JoinRequest(ticket=ticket, member_id=member_id, new_member_id=new_id, **{**values, **changes})


def join(group, now_ms=NOW, settings=SETTINGS, **changes):
    return classic.join(group, join_request(**changes), settings, now_ms)


def sync(group, member_id, ticket=9, generation=None, assignments=None, now_ms=NOW, **changes):
    member = MemberRequest(
        member_id=member_id, generation=group.generation if generation is None else generation, **changes
    )
    return classic.sync(
        group, SyncRequest(ticket=ticket, member=member, assignments=assignments or {}), now_ms
    )


def beat(group, member_id, generation=None, instance_id=None, now_ms=NOW):
    generation = group.generation if generation is None else generation
    request = MemberRequest(member_id=member_id, generation=generation, instance_id=instance_id)
    return classic.heartbeat(group, request, now_ms)


def replies(decision):
    return {answer.ticket: answer.reply for answer in decision.answers}


def stable_group(**first):
    """One member, m1, who leads and has been assigned b"m1"."""
    group = join(ClassicGroup(group_id="g"), **first).group
    return sync(group, "m1", assignments={"m1": b"m1"}).group


def group_of_two():
    """m1 leads, m2 follows; both assigned."""
    step = join(stable_group(), ticket=2, new_id="m2")
    group = join(step.group, ticket=3, member_id="m1").group
    return sync(group, "m1", assignments={"m1": b"1", "m2": b"2"}).group


# --- joining --------------------------------------------------------------------------------------


def test_the_first_member_leads_and_sees_everybodys_metadata():
    decision = join(ClassicGroup(group_id="g"))
    reply = replies(decision)[1]
    assert (reply.leader, reply.generation, reply.protocol_name) == ("m1", 1, "range")
    assert reply.members == (("m1", None, subscription("t")),)


def test_a_generation_is_persisted_before_anybody_hears_of_it():
    decision = join(ClassicGroup(group_id="g"))
    assert [event.generation for event in decision.events] == [1]
    assert classic.replay(decision.events[0]) == decision.group


def test_a_client_that_can_is_told_its_member_id_first():
    decision = join(ClassicGroup(group_id="g"), knows_member_id_required=True)
    assert (decision.reply.error, decision.reply.member_id) == (Code.MEMBER_ID_REQUIRED, "m1")
    assert decision.group.state is ClassicState.EMPTY
    assert join(decision.group, member_id="m1").group.state is ClassicState.COMPLETING


def test_an_unused_member_id_expires():
    group = join(ClassicGroup(group_id="g"), knows_member_id_required=True).group
    assert classic.next_deadline_ms(group) == NOW + 10_000
    group = classic.expire(group, SETTINGS, NOW + 10_000).group
    assert join(group, member_id="m1").reply.error is Code.UNKNOWN_MEMBER_ID


def test_the_first_rebalance_waits_for_more_members_and_each_newcomer_extends_it():
    settings = GroupSettings(group_initial_rebalance_delay_ms=100)
    group = join(ClassicGroup(group_id="g"), settings=settings).group
    assert group.state is ClassicState.PREPARING
    group = join(group, settings=settings, ticket=2, new_id="m2", now_ms=NOW + 50).group
    group = classic.expire(group, settings, NOW + 100).group
    assert group.state is ClassicState.PREPARING
    decision = classic.expire(group, settings, NOW + 200)
    assert set(replies(decision)) == {1, 2}


def test_the_protocol_most_members_prefer_is_chosen():
    group = ClassicGroup(group_id="g")
    both = (("a", b""), ("b", b""))
    settings = replace(SETTINGS, group_initial_rebalance_delay_ms=100)
    for number, protocols in enumerate([both, both[::-1], both[::-1]], start=1):
        group = join(group, settings=settings, ticket=number, new_id=f"m{number}", protocols=protocols).group
    group = classic.expire(group, settings, NOW + 100).group
    assert classic.expire(group, settings, NOW + 200).group.protocol_name == "b"


def test_a_member_without_a_common_protocol_is_refused():
    decision = join(stable_group(), ticket=2, new_id="m2", protocols=(("other", b""),))
    assert decision.reply.error is Code.INCONSISTENT_GROUP_PROTOCOL
    decision = join(stable_group(), ticket=2, new_id="m2", protocol_type="connect")
    assert decision.reply.error is Code.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(timeout_ms):
    decision = join(ClassicGroup(group_id="g"), session_timeout_ms=timeout_ms)
    assert decision.reply.error is Code.INVALID_SESSION_TIMEOUT


def test_a_full_group_takes_nobody_more():
    group = group_of_two()
    group = join(group, ticket=5, new_id="m3").group
    assert join(group, ticket=6, new_id="m4").reply.error is Code.GROUP_MAX_SIZE_REACHED


def test_too_much_metadata_is_refused():
    settings = replace(SETTINGS, group_max_member_bytes=10)
    decision = join(ClassicGroup(group_id="g"), settings=settings)
    assert decision.reply.error is Code.INVALID_REQUEST


def test_an_unknown_member_is_refused():
    assert join(stable_group(), member_id="who").reply.error is Code.UNKNOWN_MEMBER_ID


def test_a_followers_unchanged_rejoin_gets_the_current_generation():
    group = group_of_two()
    decision = join(group, member_id="m2", ticket=7)
    assert (decision.reply.generation, decision.reply.members) == (group.generation, ())
    assert decision.group.state is ClassicState.STABLE


def test_a_leaders_rejoin_starts_a_rebalance():
    assert join(group_of_two(), member_id="m1", ticket=7).group.state is ClassicState.PREPARING


def test_a_changed_subscription_starts_a_rebalance():
    decision = join(group_of_two(), member_id="m2", ticket=7, protocols=(("range", subscription("u")),))
    assert decision.group.state is ClassicState.PREPARING


def test_a_repeated_join_answers_the_one_before():
    group = join(group_of_two(), ticket=7, new_id="m3").group
    decision = join(group, ticket=8, member_id="m3")
    assert replies(decision)[7].error is Code.REBALANCE_IN_PROGRESS


def test_members_that_do_not_rejoin_in_time_are_out():
    group = join(group_of_two(), ticket=7, new_id="m3").group
    for offset in range(0, 60_000, 5_000):
        for member_id in ("m1", "m2"):
            group = beat(group, member_id, now_ms=NOW + offset).group
    decision = classic.expire(group, SETTINGS, NOW + 60_000)
    assert replies(decision)[7].leader == "m3"
    assert list(decision.group.members) == ["m3"]


# --- syncing --------------------------------------------------------------------------------------


def test_followers_wait_for_the_leaders_assignment():
    group = join(join(stable_group(), ticket=2, new_id="m2").group, ticket=3, member_id="m1").group
    waiting = sync(group, "m2", ticket=4)
    assert waiting.reply is None and not waiting.answers
    decision = sync(waiting.group, "m1", ticket=5, assignments={"m1": b"1", "m2": b"2"})
    assert {ticket: reply.assignment for ticket, reply in replies(decision).items()} == {4: b"2", 5: b"1"}
    assert classic.replay(decision.events[0]) == decision.group


def test_a_sync_of_another_generation_or_protocol_is_refused():
    group = stable_group()
    assert sync(group, "m1", generation=7).reply.error is Code.ILLEGAL_GENERATION
    request = SyncRequest(
        ticket=1, member=MemberRequest(member_id="m1", generation=group.generation), protocol_name="other"
    )
    assert classic.sync(group, request, NOW).reply.error is Code.INCONSISTENT_GROUP_PROTOCOL
    assert sync(group, "who").reply.error is Code.UNKNOWN_MEMBER_ID


def test_a_sync_during_a_rebalance_is_sent_back_to_join():
    group = join(group_of_two(), ticket=7, new_id="m3").group
    assert sync(group, "m2").reply.error is Code.REBALANCE_IN_PROGRESS


def test_a_newcomer_interrupts_those_who_wait_for_the_assignment():
    group = join(join(stable_group(), ticket=2, new_id="m2").group, ticket=3, member_id="m1").group
    group = sync(group, "m2", ticket=4).group
    decision = join(group, ticket=5, new_id="m3")
    assert replies(decision)[4].error is Code.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_is_out():
    group = join(join(stable_group(), ticket=2, new_id="m2").group, ticket=3, member_id="m1").group
    group = sync(group, "m2", ticket=4).group
    for offset in range(0, 60_000, 5_000):
        group = beat(group, "m1", now_ms=NOW + offset).group
    decision = classic.expire(group, SETTINGS, NOW + 60_000)
    assert replies(decision)[4].error is Code.REBALANCE_IN_PROGRESS
    assert list(decision.group.members) == ["m2"]


# --- heartbeats and leaving -----------------------------------------------------------------------


def test_heartbeats_are_checked():
    group = group_of_two()
    assert beat(group, "m2").reply is Code.NONE
    assert beat(group, "m2", generation=1).reply is Code.ILLEGAL_GENERATION
    assert beat(group, "who").reply is Code.UNKNOWN_MEMBER_ID
    assert beat(join(group, ticket=7, new_id="m3").group, "m2").reply is Code.REBALANCE_IN_PROGRESS


def test_a_silent_member_is_removed_and_the_rest_rebalances():
    group = beat(group_of_two(), "m1", now_ms=NOW + 9_000).group
    assert classic.next_deadline_ms(group) == NOW + 10_000
    group = classic.expire(group, SETTINGS, NOW + 10_000).group
    assert list(group.members) == ["m1"]
    assert group.state is ClassicState.PREPARING


def test_a_member_whose_request_is_parked_does_not_expire():
    group = join(group_of_two(), ticket=7, new_id="m3").group
    for offset in range(0, 40_000, 5_000):
        group = beat(beat(group, "m1", now_ms=NOW + offset).group, "m2", now_ms=NOW + offset).group
        group = classic.expire(group, SETTINGS, NOW + offset).group
    assert "m3" in group.members


def test_the_last_member_leaves_an_empty_group_of_a_new_generation():
    decision = classic.leave(stable_group(), [LeaveRequest(member_id="m1")], SETTINGS, NOW)
    assert decision.reply == (Code.NONE,)
    assert (decision.group.state, decision.group.generation) == (ClassicState.EMPTY, 2)
    assert classic.replay(decision.events[0]) == decision.group


def test_several_leave_at_once_each_with_its_own_answer():
    requests = [LeaveRequest(member_id="m2"), LeaveRequest(member_id="who")]
    decision = classic.leave(group_of_two(), requests, SETTINGS, NOW)
    assert decision.reply == (Code.NONE, Code.UNKNOWN_MEMBER_ID)
    assert list(decision.group.members) == ["m1"]


# --- static members -------------------------------------------------------------------------------


def static_group():
    return stable_group(instance_id="a")


def test_a_static_member_returns_without_a_rebalance():
    owned = subscription("t", owned=b"what it owned")
    decision = join(static_group(), new_id="m9", instance_id="a", protocols=(("range", owned),))
    assert decision.group.state is ClassicState.STABLE
    assert decision.reply.member_id == "m9" and decision.reply.skip_assignment
    assert decision.group.members["m9"].assignment == b"m1"
    assert classic.replay(decision.events[0]) == decision.group


def test_an_old_client_that_returns_as_leader_is_not_told_so():
    decision = join(static_group(), new_id="m9", instance_id="a", knows_skip_assignment=False)
    assert (decision.reply.leader, decision.reply.members) == ("m1", ())


def test_a_static_member_that_returns_with_other_topics_starts_a_rebalance():
    protocols = (("range", subscription("t", "u")),)
    decision = join(static_group(), new_id="m9", instance_id="a", protocols=protocols)
    assert decision.group.generation == 2


def test_the_former_incarnation_is_fenced():
    group = join(static_group(), new_id="m9", instance_id="a").group
    assert beat(group, "m1", instance_id="a").reply is Code.FENCED_INSTANCE_ID
    assert sync(group, "m1", instance_id="a").reply.error is Code.FENCED_INSTANCE_ID
    assert join(group, member_id="m1", instance_id="a").reply.error is Code.FENCED_INSTANCE_ID


def test_the_former_incarnations_parked_join_is_fenced():
    group = join(group_of_two(), ticket=7, new_id="m3", instance_id="a").group
    decision = join(group, ticket=8, new_id="m9", instance_id="a")
    assert replies(decision)[7].error is Code.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_rejoin_keeps_its_place_until_its_session_ends():
    group = join(static_group(), ticket=2, new_id="m2", now_ms=NOW + 1).group
    group = replace(group, phase_deadline_ms=NOW + 5_000)
    group = classic.expire(group, SETTINGS, NOW + 5_000).group
    assert set(group.members) == {"m1", "m2"} and group.leader == "m2"
    assert set(classic.expire(group, SETTINGS, NOW + 10_000).group.members) == {"m2"}


def test_a_static_member_is_removed_by_its_instance_id():
    decision = classic.leave(static_group(), [LeaveRequest(member_id="", instance_id="a")], SETTINGS, NOW)
    assert decision.reply == (Code.NONE,) and not decision.group.members
    decision = classic.leave(static_group(), [LeaveRequest(member_id="x", instance_id="a")], SETTINGS, NOW)
    assert decision.reply == (Code.FENCED_INSTANCE_ID,)


# --- restarts -------------------------------------------------------------------------------------


def test_after_a_restart_members_go_on_in_their_generation():
    group = group_of_two()
    restored = classic.woken(classic.replay(classic.state.saved(group)), NOW + 99_000)
    assert restored == group
    assert beat(restored, "m2", now_ms=NOW + 100_000).reply is Code.NONE
    assert classic.next_deadline_ms(restored) == NOW + 109_000


def test_an_unfinished_generation_is_resumed_after_a_restart():
    group = join(ClassicGroup(group_id="g")).group
    restored = classic.woken(classic.replay(classic.state.saved(group)), NOW)
    assert join(restored, member_id="m1").reply.generation == 1
    decision = sync(restored, "m1", ticket=4, assignments={"m1": b"x"})
    assert replies(decision)[4].assignment == b"x"
