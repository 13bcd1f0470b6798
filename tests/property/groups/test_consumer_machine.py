"""Random lives of server-side groups.

Named invariants: PartitionsHaveOneOwner, EpochsOnlyGrow, ReplayEqualsState,
EveryMemberGetsThere. Hypothesis prints the seed and the steps of a failure.
"""

import itertools
from dataclasses import dataclass, field, replace
from uuid import UUID

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.groups import Code, GroupSettings, TopicInfo, consumer
from headrace.groups.consumer import ConsumerGroup, ConsumerHeartbeat, ConsumerState, KnownTopics
from headrace.groups.journal import decode, encode

SETTINGS = GroupSettings(group_max_size=6)
REBALANCE_MS = 20_000


@dataclass
class Client:
    """A consumer as real ones behave: it reports what it owns, and revokes when it gets round to it."""

    member_id: str
    topics: frozenset[str]
    assignor: str | None = None
    instance_id: str | None = None
    epoch: int = 0
    owned: frozenset = field(default_factory=frozenset)
    wanted: frozenset | None = None
    fenced: bool = False
    unsure: bool = False  # an answer was lost: it says everything again

    def drop(self):
        self.epoch, self.owned, self.wanted = 0, frozenset(), None


class ConsumerLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.group = ConsumerGroup(group_id="g")
        self.replayed: ConsumerGroup | None = None
        self.clients: list[Client] = []
        self.numbers = itertools.count(1)
        self.catalog = KnownTopics(version=1, topics={})
        self.highest_epoch = 0
        for name, count in (("t", 3), ("u", 2)):
            self.put_topic(name, count)

    def put_topic(self, name, count):
        info = TopicInfo(topic_id=UUID(int=next(self.numbers)), partitions=count)
        self.change_topics({**self.catalog.topics, name: info})

    def change_topics(self, topics):
        self.catalog = KnownTopics(version=self.catalog.version + 1, topics=topics)

    # --- the shell ----------------------------------------------------------------------------

    def take(self, decision):
        self.group = decision.group
        for event in decision.events:
            self.replayed = consumer.replay(self.replayed, decode(*encode(event)))
        return decision.reply

    def beat(self, client, *, full=False, lost=False):
        joining = client.epoch == 0
        say_all = joining or full or client.unsure
        request = ConsumerHeartbeat(
            member_id=client.member_id,
            epoch=client.epoch,
            instance_id=client.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if say_all else -1,
            topic_names=client.topics if say_all else None,
            assignor=client.assignor if say_all else None,
            owned=frozenset() if joining else client.owned,
        )
        reply = self.take(consumer.heartbeat(self.group, request, self.catalog, SETTINGS, self.now_ms))
        client.unsure = lost
        if not lost:
            self.deliver(client, reply)

    def deliver(self, client, reply):
        if reply.error is Code.NONE:
            client.epoch = reply.epoch
            if reply.assignment is not None:
                client.wanted = reply.assignment
        elif reply.error in (Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID):
            client.drop()
        elif reply.error is Code.FENCED_INSTANCE_ID:
            client.fenced = True
        else:
            assert reply.error in (Code.GROUP_MAX_SIZE_REACHED, Code.UNRELEASED_INSTANCE_ID), reply
            client.drop()

    def reconcile(self, client):
        """The client revokes what it lost and takes what it was given."""
        if client.wanted is not None:
            client.owned, client.wanted = client.wanted, None

    def alive(self):
        return [client for client in self.clients if not client.fenced]

    # --- rules --------------------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) < 8)
    @rule(
        topics=st.sampled_from([frozenset("t"), frozenset("tu"), frozenset("u")]),
        assignor=st.sampled_from([None, "range"]),
        instance=st.sampled_from([None, None, "a"]),
    )
    def a_client_starts(self, topics, assignor, instance):
        self.clients.append(Client(f"m{next(self.numbers)}", topics, assignor, instance))

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), full=st.booleans(), lost=st.booleans())
    def a_client_beats(self, data, full, lost):
        client = data.draw(st.sampled_from(self.alive()))
        self.beat(client, full=full, lost=lost)

    @precondition(lambda self: self.alive())
    @rule()
    def all_clients_beat_and_reconcile(self):
        for client in self.alive():
            self.beat(client)
            self.reconcile(client)

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def all_beat_and_one_is_slow_to_revoke(self, data):
        slow = data.draw(st.sampled_from(self.alive()))
        for client in self.alive() + self.alive():
            self.beat(client)
            if client is not slow:
                self.reconcile(client)

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def a_client_reconciles(self, data):
        self.reconcile(data.draw(st.sampled_from(self.alive())))

    @precondition(lambda self: self.alive())
    @rule(data=st.data(), topics=st.sampled_from([frozenset("t"), frozenset("tu"), frozenset()]))
    def a_client_subscribes_anew(self, data, topics):
        client = data.draw(st.sampled_from(self.alive()))
        client.topics = topics
        self.beat(client, full=True)

    @precondition(lambda self: [c for c in self.alive() if c.epoch > 0])
    @rule(data=st.data(), for_now=st.booleans())
    def a_client_leaves(self, data, for_now):
        client = data.draw(st.sampled_from([c for c in self.alive() if c.epoch > 0]))
        self.clients.remove(client)
        epoch = -2 if for_now and client.instance_id else -1
        request = ConsumerHeartbeat(member_id=client.member_id, epoch=epoch, instance_id=client.instance_id)
        self.take(consumer.heartbeat(self.group, request, self.catalog, SETTINGS, self.now_ms))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_client_dies(self, data):
        self.clients.remove(data.draw(st.sampled_from(self.clients)))

    @rule(ms=st.sampled_from([100, 6_000, 21_000, 46_000]))
    def time_passes(self, ms):
        end_ms = self.now_ms + ms
        while (due_ms := consumer.next_deadline_ms(self.group)) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.take(consumer.expire(self.group, self.now_ms))
            after_ms = consumer.next_deadline_ms(self.group)
            assert after_ms is None or after_ms > self.now_ms, "a deadline that does not pass"
        self.now_ms = end_ms

    @rule(name=st.sampled_from("tu"), more=st.integers(1, 2))
    def a_topic_grows(self, name, more):
        info = self.catalog.topics.get(name)
        if info is not None and info.partitions < 8:
            grown = replace(info, partitions=info.partitions + more)
            self.change_topics({**self.catalog.topics, name: grown})

    @rule()
    def a_topic_is_deleted_or_created(self):
        if "u" in self.catalog.topics:
            self.change_topics({name: i for name, i in self.catalog.topics.items() if name != "u"})
        else:
            self.put_topic("u", 3)

    @rule()
    def the_broker_restarts(self):
        restored = self.replayed or ConsumerGroup(group_id="g")
        self.group = consumer.woken(restored, SETTINGS, self.now_ms)

    # --- invariants ---------------------------------------------------------------------------

    @invariant()
    def replay_equals_state(self):
        assert (self.replayed or ConsumerGroup(group_id="g")) == self.group

    @invariant()
    def partitions_have_one_owner(self):
        held = [p for m in self.group.members.values() for p in m.assigned | m.revoking]
        assert len(held) == len(set(held))

    @invariant()
    def no_two_living_members_read_one_partition(self):
        """As clients see it: whoever is still in the group and was told of a partition reads it alone."""
        seen = {}
        for client in self.alive():
            member = self.group.members.get(client.member_id)
            if (
                member is None
                or client.epoch not in (member.epoch, member.previous_epoch)
                or client.epoch == 0
            ):
                continue  # it will be fenced at its next beat; its commits are refused already
            for partition in client.owned:
                assert partition not in seen, (partition, client, seen[partition])
                seen[partition] = client

    @invariant()
    def epochs_only_grow(self):
        assert self.group.epoch >= self.highest_epoch
        assert self.group.target_epoch <= self.group.epoch
        assert all(member.epoch <= self.group.epoch for member in self.group.members.values())
        self.highest_epoch = self.group.epoch

    def teardown(self):
        """Left alone, every member reaches its target, and every partition has exactly one reader."""
        kept = {}
        for client in self.alive():
            kept[client.instance_id or client.member_id] = client
        self.clients = list(kept.values())[: SETTINGS.group_max_size]
        self.time_passes(100)
        for _ in range(25):
            for client in self.alive():
                self.beat(client)
                self.reconcile(client)
            self.time_passes(4_000)
        assert len(self.group.members) == len(self.alive())
        assert self.group.state is (ConsumerState.STABLE if self.alive() else ConsumerState.EMPTY)
        for name, info in self.catalog.topics.items():
            readers = [client for client in self.alive() if name in client.topics]
            for partition in range(info.partitions):
                owners = [c for c in self.alive() if (info.topic_id, partition) in c.owned]
                assert len(owners) == bool(readers)


TestConsumerLife = ConsumerLife.TestCase
TestConsumerLife.settings = hypothesis_settings(
    max_examples=150, stateful_step_count=40, deadline=None, print_blob=True
)
