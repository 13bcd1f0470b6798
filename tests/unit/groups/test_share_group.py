"""Members of a queue, its sessions, its settings, and their records."""

import dataclasses
from uuid import UUID

import pytest

from headrace.errors import CorruptionError, RequestError
from headrace.groups import Code, GroupSettings, TopicInfo
from headrace.groups.consumer import KnownTopics
from headrace.groups.share import (
    FINAL,
    Sessions,
    ShareConfig,
    ShareDecision,
    ShareGroup,
    ShareHeartbeat,
    ShareSession,
    check_overrides,
    dead_letter_topic,
    expire_members,
    heartbeat,
    rouse,
)
from headrace.groups.share.events import (
    ShareConfigRemoved,
    ShareConfigSaved,
    ShareGroupRemoved,
    ShareGroupSaved,
    ShareMemberRemoved,
    ShareMemberSaved,
    SharePartitionRemoved,
)
from headrace.groups.share.journal import decode, encode
from headrace.groups.share.membership import replay_member

TOPIC, OTHER = UUID(int=1), UUID(int=2)
CATALOG = KnownTopics(
    version=1,
    topics={"t": TopicInfo(topic_id=TOPIC, partitions=2), "u": TopicInfo(topic_id=OTHER, partitions=1)},
)
CONFIG = ShareConfig(session_timeout_ms=1000)


def beat(
    group: ShareGroup, member: str, epoch: int, *names: str, catalog: KnownTopics = CATALOG, now_ms: int = 0
) -> ShareDecision[ShareGroup]:
    request = ShareHeartbeat(member_id=member, epoch=epoch, topic_names=frozenset(names) if names else None)
    return heartbeat(group, request, catalog, CONFIG, max_size=2, now_ms=now_ms)


def test_every_member_reads_every_partition_that_it_subscribes_to() -> None:
    first = beat(ShareGroup(group_id="g"), "a", 0, "t")
    assert first.reply.assignment == {(TOPIC, 0), (TOPIC, 1)}
    second = beat(first.state, "b", 0, "t", "u", "missing")
    assert second.reply.assignment == {(TOPIC, 0), (TOPIC, 1), (OTHER, 0)}
    assert second.reply.epoch == 2


def test_a_member_is_told_only_what_is_new() -> None:
    joined = beat(ShareGroup(group_id="g"), "a", 0, "t")
    again = beat(joined.state, "a", 1)
    assert again.reply.assignment is None and not again.events
    grown = KnownTopics(version=2, topics={"t": TopicInfo(topic_id=TOPIC, partitions=3)})
    news = beat(again.state, "a", 1, catalog=grown)
    assert news.reply.assignment == {(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)}
    assert news.reply.epoch == 2
    lost = beat(news.state, "a", 1, catalog=grown)
    assert lost.reply.epoch == 2 and lost.reply.assignment == news.reply.assignment


@pytest.mark.parametrize(
    ("member", "epoch", "names", "code"),
    [
        ("", 0, ("t",), Code.INVALID_REQUEST),
        ("b", 0, (), Code.INVALID_REQUEST),
        ("a", -2, (), Code.INVALID_REQUEST),
        ("b", 1, (), Code.UNKNOWN_MEMBER_ID),
        ("b", -1, (), Code.UNKNOWN_MEMBER_ID),
        ("a", 7, (), Code.FENCED_MEMBER_EPOCH),
    ],
)
def test_what_makes_no_sense_is_refused(member: str, epoch: int, names: tuple[str, ...], code: Code) -> None:
    group = beat(ShareGroup(group_id="g"), "a", 0, "t").state
    refused = beat(group, member, epoch, *names)
    assert refused.reply.error is code and refused.reply.message
    assert refused.state is group and not refused.events


def test_a_full_group_takes_no_more_members() -> None:
    group = beat(beat(ShareGroup(group_id="g"), "a", 0, "t").state, "b", 0, "t").state
    assert beat(group, "c", 0, "t").reply.error is Code.GROUP_MAX_SIZE_REACHED
    assert beat(group, "b", 0, "t").reply.error is Code.NONE


def test_members_go_by_will_and_by_silence() -> None:
    group = beat(beat(ShareGroup(group_id="g"), "a", 0, "t").state, "b", 0, "t", now_ms=500).state
    assert group.next_deadline_ms() == 1000
    silent = expire_members(group, 1000)
    assert list(silent.state.members) == ["b"]
    left = beat(silent.state, "b", -1)
    assert left.state.state == "Empty" and left.reply.epoch == -1


def test_a_replay_gives_the_members_back() -> None:
    steps = [beat(ShareGroup(group_id="g"), "a", 0, "t")]
    steps.append(beat(steps[-1].state, "b", 0, "u"))
    steps.append(beat(steps[-1].state, "a", -1))
    group = ShareGroup(group_id="g")
    for step in steps:
        for event in step.events:
            found = decode(*encode(event))
            if isinstance(found, ShareGroupSaved):
                group = ShareGroup(group_id="g", epoch=found.epoch, members=group.members)
            else:
                assert isinstance(found, ShareMemberSaved | ShareMemberRemoved)
                group = replay_member(group, found)
    assert group == steps[-1].state
    assert rouse(group, CONFIG, 70).next_deadline_ms() == 1070


def test_every_kind_of_event_has_a_record() -> None:
    events = [
        ShareGroupRemoved(group_id="g"),
        ShareConfigSaved(group_id="g", overrides={"share.isolation.level": "read_committed"}),
        ShareConfigRemoved(group_id="g"),
        SharePartitionRemoved(group_id="g", topic_id=TOPIC, partition=3),
    ]
    assert [decode(*encode(event)) for event in events] == events
    for key, value in [(b"{}", b"{}"), (b'{"v":9,"kind":"group","group":"g"}', None), (None, None)]:
        with pytest.raises(CorruptionError):
            decode(key, value)


# --- sessions -----------------------------------------------------------------------------------


def test_a_session_expects_the_epoch_after_the_last() -> None:
    sessions = Sessions(10)
    session = sessions.open("g", "a", 1)
    assert isinstance(session, ShareSession)
    assert sessions.find("g", "a", 1, 1) is session
    session.advance()
    assert sessions.find("g", "a", 1, 1) is Code.INVALID_SHARE_SESSION_EPOCH
    assert sessions.find("g", "a", FINAL, 1) is session
    assert sessions.find("g", "b", 1, 1) is Code.SHARE_SESSION_NOT_FOUND
    session.epoch = 2**31 - 1
    session.advance()
    assert session.epoch == 1


def test_a_session_is_found_by_its_user_on_its_connection_only() -> None:
    sessions = Sessions(10)
    session = sessions.open("g", "a", 1, "User:alice")
    assert sessions.find("g", "a", 1, 1, "User:alice") is session
    for connection, user in ((2, "User:alice"), (1, "User:bob"), (1, None)):
        for epoch in (1, 2, FINAL):
            assert sessions.find("g", "a", epoch, connection, user) is Code.SHARE_SESSION_NOT_FOUND


def test_a_session_is_replaced_by_its_user_only() -> None:
    sessions = Sessions(1)
    first = sessions.open("g", "a", 1, "User:alice")
    assert isinstance(first, ShareSession)
    assert sessions.open("g", "a", 1, "User:bob") is Code.GROUP_AUTHORIZATION_FAILED
    assert sessions.is_open(first)
    second = sessions.open("g", "a", 2, "User:alice")
    assert isinstance(second, ShareSession) and sessions.is_open(second) and not sessions.is_open(first)
    sessions.close(first)
    assert sessions.is_open(second)


def test_sessions_end_with_their_connection_and_are_bounded() -> None:
    sessions = Sessions(2)
    sessions.open("g", "a", 1)
    second = sessions.open("g", "b", 1)
    assert sessions.open("g", "c", 2) is Code.SHARE_SESSION_LIMIT_REACHED
    assert isinstance(second, ShareSession)
    sessions.close(second)
    assert [each.member_id for each in sessions.disconnected(1)] == ["a"]
    assert len(sessions) == 0 and sessions.disconnected(1) == []


def test_each_partition_of_a_session_comes_first_in_turn() -> None:
    session = ShareSession("g", "a", 1)
    session.change([(TOPIC, 0), (TOPIC, 1), (OTHER, 0)], [(OTHER, 0)])
    assert session.rotate() == [(TOPIC, 0), (TOPIC, 1)]
    assert session.rotate() == [(TOPIC, 1), (TOPIC, 0)]


# --- settings -----------------------------------------------------------------------------------


def test_what_is_set_for_a_group_wins_over_the_broker() -> None:
    overrides = {"share.record.lock.duration.ms": "2000", "share.auto.offset.reset": "by_duration:P1DT2H"}
    config = ShareConfig.of("my group", overrides, GroupSettings())
    assert config.lock_duration_ms == 2000 and config.delivery_count_limit == 5
    assert config.reset_age_ms == 26 * 3_600_000
    assert config.dead_letter_topic == dead_letter_topic("my group") == "dlq.my_group"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.auto.offset.reset", "sideways"),
        ("share.record.lock.duration.ms", "5"),
        ("share.delivery.count.limit", "many"),
        ("errors.deadletterqueue.topic.name", "orders"),
        ("errors.deadletterqueue.topic.name", "dlq.a/b"),
        ("headrace.share.lease", "forever"),
        ("consumer.session.timeout.ms", "45000"),
    ],
)
def test_what_cannot_be_set_says_what_can(name: str, value: str) -> None:
    with pytest.raises(RequestError, match=name):
        check_overrides({name: value})


def test_a_member_of_a_record_from_before_members_had_users_has_none() -> None:
    key = b'{"v":1,"kind":"member","group":"g","member":"m"}'
    value = b'{"v":1,"rack":null,"client":"c","host":"/h","topics":["t"],"epoch":1,"previous":0}'
    event = decode(key, value)
    assert isinstance(event, ShareMemberSaved) and event.user is None
    again = decode(*encode(ShareMemberSaved(**{**dataclasses.asdict(event), "user": "User:alice"})))
    assert isinstance(again, ShareMemberSaved) and again.user == "User:alice"
