"""Rules of the server-side protocol, one by one."""

from dataclasses import replace
from uuid import UUID

import pytest

from headrace.groups import Code, GroupSettings, TopicInfo, consumer
from headrace.groups.consumer import ConsumerGroup, ConsumerHeartbeat, ConsumerState, KnownTopics, MemberState

SETTINGS = GroupSettings(group_max_size=3)
NOW = 1_000_000
T, U = UUID(int=1), UUID(int=2)
CATALOG = KnownTopics(
    version=1,
    topics={
        "t": TopicInfo(topic_id=T, partitions=4),
        "u": TopicInfo(topic_id=U, partitions=2),
        "__consumer_offsets": TopicInfo(topic_id=UUID(int=3), partitions=1, internal=True),
    },
)
NOTHING = frozenset()


def of(topic, *partitions):
    return frozenset((topic, partition) for partition in partitions)


def beat(group, member_id, epoch, *, catalog=CATALOG, now_ms=NOW, **changes):
    request = ConsumerHeartbeat(member_id=member_id, epoch=epoch, **changes)
    return consumer.heartbeat(group, request, catalog, SETTINGS, now_ms)


def join(group, member_id, *, topics=("t",), **changes):
    given = {"rebalance_timeout_ms": 60_000, "topic_names": frozenset(topics), "owned": NOTHING, **changes}
    return beat(group, member_id, 0, **given)


def empty():
    return ConsumerGroup(group_id="g")


def two_members():
    """a and b, two partitions each, settled at epoch 2."""
    group = join(join(empty(), "a").group, "b").group
    group = beat(group, "a", 1, owned=of(T, 0, 1, 2, 3)).group
    group = beat(group, "a", 1, owned=of(T, 0, 1)).group
    return beat(group, "b", 2, owned=NOTHING).group


def refused(decision):
    assert not decision.events
    return decision.reply.error


# --- joining and reconciling ----------------------------------------------------------------------


def test_the_first_member_gets_everything_at_once():
    decision = join(empty(), "a")
    assert decision.reply.assignment == of(T, 0, 1, 2, 3)
    assert (decision.reply.epoch, decision.group.state) == (1, ConsumerState.STABLE)


def test_a_partition_is_handed_over_only_after_its_owner_gave_it_up():
    group = join(empty(), "a").group
    decision = join(group, "b")
    assert decision.reply.assignment == NOTHING
    decision = beat(decision.group, "a", 1, owned=of(T, 0, 1, 2, 3))
    assert decision.reply.assignment == of(T, 0, 1)
    assert decision.reply.epoch == 1
    assert beat(decision.group, "b", 2, owned=NOTHING).reply.assignment is None
    decision = beat(decision.group, "a", 1, owned=of(T, 0, 1))
    assert decision.reply.epoch == 2
    assert beat(decision.group, "b", 2, owned=NOTHING).reply.assignment == of(T, 2, 3)


def test_silence_about_what_a_member_owns_confirms_no_revocation():
    group = join(join(empty(), "a").group, "b").group
    group = beat(group, "a", 1, owned=of(T, 0, 1, 2, 3)).group
    group = beat(group, "a", 1).group
    assert group.members["a"].state is MemberState.UNREVOKED


def test_a_member_that_does_not_revoke_in_time_is_removed():
    group = join(join(empty(), "a").group, "b").group
    group = beat(group, "a", 1, owned=of(T, 0, 1, 2, 3)).group
    for offset in range(0, 60_000, 5_000):
        group = beat(group, "a", 1, now_ms=NOW + offset).group
        group = beat(group, "b", 2, now_ms=NOW + offset).group
    group = consumer.expire(group, NOW + 60_000).group
    assert list(group.members) == ["b"]
    assert beat(group, "b", 2, now_ms=NOW + 60_000).reply.assignment == of(T, 0, 1, 2, 3)


def test_an_unchanged_assignment_is_not_sent_again_unless_the_member_says_everything_again():
    group = two_members()
    assert beat(group, "a", 2).reply.assignment is None
    full = {"rebalance_timeout_ms": 1, "topic_names": frozenset("t"), "owned": of(T, 0, 1)}
    assert beat(group, "a", 2, **full).reply.assignment == of(T, 0, 1)


def test_a_heartbeat_that_changes_nothing_writes_nothing():
    assert beat(two_members(), "a", 2, owned=of(T, 0, 1)).events == ()


def test_a_member_that_leaves_frees_its_partitions():
    decision = beat(two_members(), "a", -1)
    assert decision.reply.epoch == -1
    assert beat(decision.group, "b", 2, owned=of(T, 2, 3)).reply.assignment == of(T, 0, 1, 2, 3)


def test_a_silent_member_is_removed():
    group = beat(two_members(), "a", 2, now_ms=NOW + 1_000).group
    group = consumer.expire(group, NOW + 45_000).group
    assert list(group.members) == ["a"]


def test_a_member_that_joins_again_starts_from_nothing():
    decision = join(two_members(), "a")
    assert decision.reply.assignment == of(T, 0, 1)
    assert decision.group.state is ConsumerState.STABLE


# --- fencing --------------------------------------------------------------------------------------


def test_a_wrong_epoch_is_fenced():
    group = two_members()
    assert refused(beat(group, "a", 3)) is Code.FENCED_MEMBER_EPOCH
    assert refused(beat(group, "a", 1, owned=of(T, 3))) is Code.FENCED_MEMBER_EPOCH
    assert refused(beat(group, "who", 2)) is Code.UNKNOWN_MEMBER_ID


def test_the_epoch_before_is_accepted_when_an_answer_was_lost():
    assert beat(two_members(), "a", 1, owned=of(T, 0, 1)).reply.error is Code.NONE


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": -3},
        {"epoch": 0, "owned": NOTHING, "topic_names": frozenset()},
        {"epoch": 0, "rebalance_timeout_ms": 1, "topic_names": frozenset()},
        {"epoch": 0, "rebalance_timeout_ms": 1, "owned": NOTHING},
        {"epoch": 0, "rebalance_timeout_ms": 1, "owned": of(T, 1), "topic_names": frozenset()},
        {"epoch": -2},
        {"epoch": 1, "instance_id": ""},
        {"epoch": 1, "member_id": ""},
    ],
)
def test_a_malformed_heartbeat_is_refused(changes):
    request = {"member_id": "a", **changes}
    assert (
        refused(beat(empty(), request.pop("member_id"), request.pop("epoch"), **request))
        is Code.INVALID_REQUEST
    )


def test_an_unknown_assignor_is_refused():
    assert refused(join(empty(), "a", assignor="best")) is Code.UNSUPPORTED_ASSIGNOR


def test_a_full_group_takes_nobody_more():
    group = empty()
    for name in "abc":
        group = join(group, name).group
    assert refused(join(group, "d")) is Code.GROUP_MAX_SIZE_REACHED


# --- static members -------------------------------------------------------------------------------


def test_a_static_member_that_left_for_now_finds_its_partitions_again():
    group = join(join(empty(), "a", instance_id="i").group, "b").group
    group = beat(group, "a", 1, owned=of(T, 0, 1)).group
    epoch = group.epoch
    group = beat(group, "a", -2, instance_id="i").group
    assert beat(group, "b", 2, owned=of(T, 2, 3)).group.members["b"].assigned == of(T, 2, 3)
    decision = join(group, "a2", instance_id="i")
    assert decision.reply.assignment == of(T, 0, 1)
    assert decision.group.epoch == epoch and set(decision.group.members) == {"a2", "b"}


def test_an_instance_id_in_use_is_refused():
    group = join(empty(), "a", instance_id="i").group
    assert refused(join(group, "a2", instance_id="i")) is Code.UNRELEASED_INSTANCE_ID
    assert refused(beat(group, "a2", 1, instance_id="i")) is Code.FENCED_INSTANCE_ID
    assert refused(beat(group, "a", 1, instance_id="other")) is Code.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_return_is_removed():
    group = beat(join(empty(), "a", instance_id="i").group, "a", -2, instance_id="i").group
    assert not consumer.expire(group, NOW + 45_000).group.members


def test_an_administrator_sends_members_away():
    group = join(join(empty(), "a", instance_id="i").group, "b").group
    decision = consumer.dismiss(group, [("", "i"), ("b", None), ("x", None), ("b", "i")])
    assert decision.reply == (Code.NONE, Code.NONE, Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID)
    assert not decision.group.members


# --- topics ---------------------------------------------------------------------------------------


def test_a_topic_that_grows_is_assigned_anew():
    grown = {**CATALOG.topics, "t": TopicInfo(topic_id=T, partitions=5)}
    decision = beat(join(empty(), "a").group, "a", 1, catalog=KnownTopics(version=2, topics=grown))
    assert decision.reply.assignment == of(T, 0, 1, 2, 3, 4)


def test_a_topic_created_later_is_found():
    group = join(empty(), "a", topics=("late",)).group
    late = {**CATALOG.topics, "late": TopicInfo(topic_id=UUID(int=9), partitions=1)}
    assert beat(group, "a", 1, catalog=KnownTopics(version=2, topics=late)).reply.assignment == of(
        UUID(int=9), 0
    )


def test_a_deleted_topic_is_revoked():
    group = join(empty(), "a", topics=("t", "u")).group
    left = KnownTopics(version=2, topics={"u": CATALOG.topics["u"]})
    decision = beat(group, "a", 1, catalog=left, owned=of(T, 0, 1, 2, 3) | of(U, 0, 1))
    assert decision.reply.assignment == of(U, 0, 1)


def test_a_change_of_other_topics_changes_nothing():
    other = KnownTopics(
        version=2, topics={**CATALOG.topics, "v": TopicInfo(topic_id=UUID(int=9), partitions=1)}
    )
    assert beat(two_members(), "a", 2, catalog=other).events == ()


def test_a_pattern_finds_topics_but_never_the_brokers_own():
    decision = join(empty(), "a", topics=(), topic_regex=".*")
    assert decision.reply.assignment == of(T, 0, 1, 2, 3) | of(U, 0, 1)


@pytest.mark.parametrize(
    "pattern", ["(", "a**", r"(a)\1", "(?=a)", "(a|b)*a(a|b){14}", "a" * 300, "((a{60}){60}){60}"]
)
def test_a_pattern_that_is_wrong_or_too_costly_is_refused(pattern):
    decision = join(empty(), "a", topics=(), topic_regex=pattern)
    assert refused(decision) is Code.INVALID_REGULAR_EXPRESSION


# --- assignors ------------------------------------------------------------------------------------


def seen_as(version=1, **visible):
    """The catalog, of which each user may know some topics."""
    return replace(
        CATALOG, version=version, visible_to=lambda user, _host: frozenset(visible.get(user or "", ()))
    )


def test_a_pattern_stands_for_topics_that_its_user_may_know_of():
    catalog = seen_as(alice=("t", "__consumer_offsets"))
    joined = join(empty(), "a", topics=(), topic_regex=".*", user="alice", catalog=catalog)
    assert joined.reply.assignment == of(T, 0, 1, 2, 3)
    assert set(joined.group.topics) == {"t"}
    for user in ("bob", None):
        nothing = join(empty(), "b", topics=(), topic_regex="u|t", user=user, catalog=catalog)
        assert nothing.reply.assignment == NOTHING and not nothing.group.topics


def test_a_hidden_topic_changes_nothing_that_a_member_can_see():
    def asked(regex):
        catalog = seen_as(alice=("t",))
        joined = join(empty(), "a", topics=(), topic_regex=regex, user="alice", catalog=catalog)
        later = beat(joined.group, "a", 1, user="alice", catalog=seen_as(2, alice=("t",)))
        return joined.reply, later.reply

    assert asked("u") == asked("no such topic".replace(" ", "-"))
    assert asked("u")[1].epoch == 1


def test_members_of_one_group_are_each_given_what_they_may_know_of():
    catalog = seen_as(alice=("t",), bob=("t", "u"))
    group = join(empty(), "a", topics=(), topic_regex=".*", user="alice", catalog=catalog).group
    group = join(group, "b", topics=(), topic_regex=".*", user="bob", catalog=catalog).group
    assert group.members["a"].target <= of(T, 0, 1, 2, 3)
    assert of(U, 0, 1) <= group.members["b"].target


def test_a_topic_that_a_member_may_no_longer_know_of_is_taken_from_it_though_others_have_it():
    both = seen_as(alice=("u",), bob=("u",))
    group = join(empty(), "a", topics=(), topic_regex=".*", user="alice", catalog=both).group
    group = join(group, "b", topics=(), topic_regex=".*", user="bob", catalog=both).group
    assert len(group.members["b"].target) == 1
    group = beat(group, "a", 1, user="alice", owned=of(U, 0, 1), catalog=seen_as(2, alice=("u",))).group
    assert group.members["b"].target == NOTHING and group.members["a"].target == of(U, 0, 1)
    epoch = group.members["a"].epoch
    again = beat(group, "a", epoch, user="alice", catalog=seen_as(3, alice=("u",), bob=("u",)))
    assert len(again.group.members["b"].target) == 1


def test_after_a_restart_a_member_keeps_what_it_may_know_of_and_loses_the_rest():
    both = seen_as(alice=("u", "t"))
    decision = join(empty(), "a", topics=(), topic_regex=".*", user="alice", catalog=both)
    group = None
    for event in decision.events:
        group = consumer.replay(group, event)
    assert group.members["a"].user == "alice"
    same = beat(group, "a", 1, user="alice", catalog=replace(both, version=7))
    assert same.reply.epoch == 1 and not same.events
    less = beat(group, "a", 1, user="alice", catalog=seen_as(7, alice=("t",)))
    assert less.group.members["a"].target == of(T, 0, 1, 2, 3)


def test_the_assignor_most_members_ask_for_is_used():
    group = join(join(empty(), "a", assignor="range").group, "b", assignor="range").group
    assert consumer.preferred_assignor(group) == "range"
    assert {k: m.target for k, m in group.members.items()} == {"a": of(T, 0, 1), "b": of(T, 2, 3)}


# --- restarts -------------------------------------------------------------------------------------


def test_epochs_and_assignments_survive_a_restart():
    decision = join(empty(), "a")
    restored = None
    for event in decision.events:
        restored = consumer.replay(restored, event)
    assert restored == decision.group
    restored = consumer.woken(restored, SETTINGS, NOW + 99_000)
    reply = beat(restored, "a", 1, now_ms=NOW + 100_000).reply
    assert (reply.error, reply.assignment) == (Code.NONE, None)


def test_epochs_grow_even_if_a_member_is_ahead_of_its_group_after_a_restart():
    group = replace(two_members(), epoch=1, target_epoch=1)
    assert consumer.woken(group, SETTINGS, NOW).epoch == 3
