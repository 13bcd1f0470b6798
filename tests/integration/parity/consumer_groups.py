"""Cases of groups by the server-side protocol (KIP-848)."""

import threading
import time

from headrace.wire import Api
from parity.case import case
from parity.classic_groups import raw_join
from parity.group_offsets import delete, describe
from parity.members import Member, commit, committed, joined, subscription
from parity.stage import code

AREA = "server-side groups"


def beat(log, group, member="member-1", epoch=0, **options):
    """The answer to a heartbeat; a joining one says all it must."""
    joining = (
        {"rebalance_timeout": 30_000, "topic_partitions": []} if epoch == 0 else {"topic_partitions": None}
    )
    fields = {"group_id": group, "member_id": member, "member_epoch": epoch, **joining, **options}
    return log.settled(lambda: log.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, fields))


def told(answer):
    shares = answer.assignment and sorted(
        list(each.partitions) for each in answer.assignment.topic_partitions
    )
    return [code(answer.error_code), answer.member_epoch, shares]


def member_of(log, topic, **options):
    """A group whose one member holds the topic's two partitions, and its epoch."""
    group = log.fresh("group")
    first = beat(log, group, subscribed_topic_names=[topic], **options)
    _, epoch, _ = Sharer(log, group, "member-1", topic, first).settle(2)
    return group, epoch


@case(AREA, "a member that joins gets an epoch and, with a later heartbeat at the latest, all partitions")
def joins(log):
    topic = log.topic(partitions=2)
    group = log.fresh("group")
    first = beat(log, group, subscribed_topic_names=[topic])
    _, _, share = Sharer(log, group, "member-1", topic, first).settle(2)
    return [code(first.error_code), first.member_epoch > 0, first.member_id, share]


@case(AREA, "two members share: the first releases partitions before the second gets them")
def shares(log):
    topic = log.topic(partitions=2)
    group = log.fresh("group")
    first = Sharer(log, group, "member-1", topic, beat(log, group, subscribed_topic_names=[topic]))
    first.settle(2)
    second = Sharer(
        log, group, "member-2", topic, beat(log, group, "member-2", subscribed_topic_names=[topic])
    )
    held_at_first = list(second.held)
    first.settle(1)
    second.settle(1)
    return [
        held_at_first,
        len(first.held),
        len(second.held),
        sorted(first.held + second.held),
        first.epoch == second.epoch,
    ]


class Sharer:
    """A member that takes and gives up partitions as it is told."""

    def __init__(self, log, group, member, topic, answer):
        self.log, self.group, self.member, self.topic_id = log, group, member, log.topic_id(topic)
        self.held, self.epoch = [], 0
        self._take(answer)

    def _take(self, answer):
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.held = sorted(
                part for each in answer.assignment.topic_partitions for part in each.partitions
            )

    def settle(self, count):
        """Heartbeats until it holds so many partitions, and once more to say so."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            holding = len(self.held) == count
            owned = [{"topic_id": self.topic_id, "partitions": self.held}] if self.held else []
            answer = beat(self.log, self.group, self.member, self.epoch, topic_partitions=owned)
            assert answer.error_code == 0, answer.error_message
            self._take(answer)
            if holding and len(self.held) == count:
                break
            threading.Event().wait(0.02)
        return self.group, self.epoch, self.held


@case(AREA, "joining without a group, a member id, a time-out or topics")
def incomplete(log):
    topic, group = log.topic(), log.fresh("group")
    requests = (
        (("", "member-1"), {"subscribed_topic_names": [topic]}),
        ((group, ""), {"subscribed_topic_names": [topic]}),
        ((group, "member-1"), {"subscribed_topic_names": [topic], "rebalance_timeout": -1}),
        ((group, "member-1"), {}),
        ((group, "member-1"), {"subscribed_topic_names": [topic], "topic_partitions": None}),
        ((group, "member-1"), {"subscribed_topic_names": [topic], "instance_id": ""}),
        ((group, "member-1"), {"subscribed_topic_names": [topic], "rack_id": ""}),
        ((group, "member-1"), {"subscribed_topic_names": []}),
    )
    return [code(beat(log, *who, **what).error_code) for who, what in requests]


@case(AREA, "an epoch below -2 is INVALID_REQUEST")
def bad_epoch(log):
    return code(beat(log, log.fresh("group"), epoch=-3).error_code)


@case(AREA, "an unknown assignor is UNSUPPORTED_ASSIGNOR")
def assignors(log):
    topic = log.topic()
    names = ("uniform", "range", "magic")
    return [
        code(beat(log, log.fresh("group"), subscribed_topic_names=[topic], server_assignor=name).error_code)
        for name in names
    ]


@case(AREA, "a heartbeat to an unknown group is GROUP_ID_NOT_FOUND, from a non-member UNKNOWN_MEMBER_ID")
def strangers(log):
    topic = log.topic(partitions=2)
    group, epoch = member_of(log, topic)
    return [
        told(beat(log, log.fresh("missing"), epoch=5)),
        told(beat(log, group, "stranger", epoch=epoch)),
        told(beat(log, log.fresh("missing"), epoch=-1)),
        told(beat(log, group, "stranger", epoch=-1)),
    ]


@case(AREA, "an epoch that is not the member's is FENCED_MEMBER_EPOCH")
def fenced(log):
    topic = log.topic(partitions=2)
    group, epoch = member_of(log, topic)
    return [
        told(beat(log, group, epoch=epoch + 1)),
        told(beat(log, group, epoch=epoch + 50)),
        code(beat(log, group, epoch=epoch).error_code),
    ]


@case(AREA, "a member that rejoins with epoch 0 gets its epoch back")
def again(log):
    topic = log.topic(partitions=2)
    group, epoch = member_of(log, topic)
    answer = beat(log, group, subscribed_topic_names=[topic])
    return [code(answer.error_code), answer.member_epoch == epoch]


@case(AREA, "leaving with epoch -1 returns it, and the member is unknown afterwards")
def leaves(log):
    topic = log.topic(partitions=2)
    group, epoch = member_of(log, topic)
    return [told(beat(log, group, epoch=-1)), code(beat(log, group, epoch=epoch).error_code)]


@case(
    AREA,
    "an instance id in use is UNRELEASED_INSTANCE_ID; after leaving with -2 it is free, and keeps its epoch",
)
def static(log):
    topic = log.topic(partitions=2)
    group, epoch = member_of(log, topic, instance_id="one")
    taken = beat(log, group, "member-2", subscribed_topic_names=[topic], instance_id="one")
    gone = beat(log, group, epoch=-2, instance_id="one")
    back = beat(log, group, "member-2", subscribed_topic_names=[topic], instance_id="one")
    late = beat(log, group, epoch=epoch, instance_id="one")
    unknown = beat(log, group, epoch=epoch, instance_id="two")
    return [
        told(taken),
        [code(gone.error_code), gone.member_epoch],
        [code(back.error_code), back.member_epoch == epoch],
        code(late.error_code),
        code(unknown.error_code),
    ]


@case(AREA, "an invalid pattern is INVALID_REGULAR_EXPRESSION; a matching one assigns the topic")
def patterns(log):
    topic = log.topic(partitions=2)
    good = log.fresh("group")
    answer = beat(log, good, subscribed_topic_regex=topic[:-1] + "[" + topic[-1] + "]")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if answer.error_code or (answer.assignment and answer.assignment.topic_partitions):
            break
        answer = beat(log, good, epoch=answer.member_epoch)
    bad = [
        code(beat(log, log.fresh("group"), subscribed_topic_regex=pattern).error_code)
        for pattern in ("[", "*", "a(", "")
    ]
    return [told(answer)[0], told(answer)[2], bad]


@case(AREA, "commits and fetches: the member's epoch, a stale one, a non-member's, none")
def commits(log):
    topic = log.topic(partitions=2)
    group, epoch = member_of(log, topic)
    return [
        commit(log, group, topic, 5, generation=epoch, member="member-1"),
        commit(log, group, topic, 6, generation=epoch + 1, member="member-1"),
        commit(log, group, topic, 6, generation=epoch, member="stranger"),
        commit(log, group, topic, 6),
        committed(log, group, topic),
        committed(log, group, topic, member="member-1", epoch=epoch),
        committed(log, group, topic, member="member-1", epoch=epoch + 1),
        committed(log, group, topic, member="stranger", epoch=epoch),
    ]


@case(AREA, "described with state, epochs and members; unknown ones and classic ones are GROUP_ID_NOT_FOUND")
def described(log):
    topic = log.topic(partitions=2)
    group, epoch = member_of(log, topic)
    classic = joined(log)
    answer = log.ask(
        Api.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group, log.fresh("missing"), classic.group]}
    )
    first, second, third = answer.groups
    (member,) = first.members
    return [
        [code(first.error_code), first.group_state, first.group_epoch == epoch, first.assignor_name],
        [member.member_id, member.member_epoch == epoch, list(member.subscribed_topic_names) == [topic]],
        [[list(each.partitions) for each in member.assignment.topic_partitions], member.member_type],
        [code(second.error_code), second.group_state],
        [code(third.error_code), third.group_state],
        describe(log, group)[:2],
    ]


@case(AREA, "deleting a group with members is NON_EMPTY_GROUP")
def deleted(log):
    topic = log.topic(partitions=2)
    group, _ = member_of(log, topic)
    refused = delete(log, group)
    beat(log, group, epoch=-1)
    return [refused, delete(log, group), delete(log, group)]


@case(AREA, "an empty group of the other protocol is taken over")
def taken_over(log):
    topic = log.topic(partitions=2)
    classic = joined(log)
    classic.leave()
    first = beat(log, classic.group, subscribed_topic_names=[topic])
    group, _ = member_of(log, topic)
    beat(log, group, epoch=-1)
    second = raw_join(log, group)
    return [code(first.error_code), code(second.error_code)]


@case(
    AREA,
    "a member of the server-side protocol joins a group of the classic one",
    differs="a group with members does not change its protocol; Kafka converts it if the members'"
    " subscriptions allow that. Let the group become empty first",
)
def mixed(log):
    topic = log.topic()
    member = Member(log, log.fresh("group"))
    member.metadata = subscription(topic)
    member.join()
    member.sync(assignments=[(member.id, b"\0\0" + b"\0\0\0\0" + b"\xff\xff\xff\xff")])
    return code(beat(log, member.group, subscribed_topic_names=[topic]).error_code)
