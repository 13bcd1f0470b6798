"""Random lives of classic groups: members join, sync, beat, leave, die; time passes; the broker restarts.

Named invariants: PartitionsHaveOneOwner, GenerationsOnlyGrow, NobodyWaitsForever,
RestartKeepsTheGeneration. Hypothesis prints the seed and the steps of a failure.
"""

import itertools
from dataclasses import dataclass, field

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.groups import Code, GroupSettings, classic
from headrace.groups.classic import (
    ClassicGroup,
    ClassicState,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    MemberRequest,
    SyncReply,
    SyncRequest,
)
from headrace.groups.journal import decode, encode
from headrace.groups.offsets import OffsetCommitter, commit_refusal

PARTITIONS = range(5)
SESSION_MS, REBALANCE_MS = 10_000, 20_000
SETTINGS = GroupSettings(group_initial_rebalance_delay_ms=100, group_max_size=6)


@dataclass
class Client:
    """A consumer as real ones behave: it drops what it owns before it joins again."""

    name: int
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    leads: tuple[str, ...] | None = None
    synced: bool = False
    ticket: int | None = None
    owned: frozenset[int] = field(default_factory=frozenset)
    fenced: bool = False

    def drop(self) -> None:
        self.generation, self.synced, self.leads, self.owned = -1, False, None, frozenset()

    def reset(self) -> None:
        self.drop()
        self.member_id = ""


class ClassicLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.group = ClassicGroup(group_id="g")
        self.events: list = []
        self.clients: list[Client] = []
        self.tickets: dict[int, Client] = {}
        self.numbers = itertools.count(1)
        self.highest_generation = 0

    # --- the shell ----------------------------------------------------------------------------

    def take(self, decision, client=None):
        self.group = decision.group
        self.events += [encode(event) for event in decision.events]
        for answer in decision.answers:
            waiting = self.tickets.pop(answer.ticket, None)
            if waiting is not None:
                waiting.ticket = None
                self.deliver(waiting, answer.reply)
        if client is not None and decision.reply is not None:
            if client.ticket is not None:
                self.tickets.pop(client.ticket)
                client.ticket = None
            self.deliver(client, decision.reply)
        return decision

    def deliver(self, client, reply):
        if isinstance(reply, JoinReply):
            self.deliver_join(client, reply)
        elif isinstance(reply, SyncReply) and reply.error is Code.NONE:
            client.owned, client.synced = frozenset(reply.assignment), True
        elif isinstance(reply, SyncReply | Code):
            self.refused(client, reply if isinstance(reply, Code) else reply.error)

    def deliver_join(self, client, reply):
        if reply.error in (Code.NONE, Code.MEMBER_ID_REQUIRED):
            client.member_id = reply.member_id
        if reply.error is Code.NONE:
            client.generation = reply.generation
            client.leads = None
            if reply.leader == reply.member_id and not reply.skip_assignment:
                client.leads = tuple(member_id for member_id, _, _ in reply.members)
        elif reply.error is not Code.MEMBER_ID_REQUIRED:
            self.refused(client, reply.error)

    def refused(self, client, error):
        if error is Code.FENCED_INSTANCE_ID:
            client.fenced = True
            client.reset()
        elif error is Code.UNKNOWN_MEMBER_ID:
            client.reset()
        elif error in (Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION):
            client.drop()
        else:
            assert error in (Code.NONE, Code.GROUP_MAX_SIZE_REACHED), error

    def park(self, client):
        client.ticket = next(self.numbers)
        self.tickets[client.ticket] = client
        return client.ticket

    # --- what clients do ----------------------------------------------------------------------

    def idle(self):
        return [client for client in self.clients if client.ticket is None and not client.fenced]

    def join(self, client, metadata=b"m"):
        client.drop()
        request = JoinRequest(
            ticket=self.park(client),
            member_id=client.member_id,
            new_member_id=f"{client.name}-{next(self.numbers)}",
            instance_id=client.instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("range", metadata),),
        )
        self.take(classic.join(self.group, request, SETTINGS, self.now_ms), client)

    def sync(self, client):
        assignments = {}
        for rank, member_id in enumerate(client.leads or ()):
            assignments[member_id] = bytes(p for p in PARTITIONS if p % len(client.leads) == rank)
        request = SyncRequest(
            ticket=self.park(client), member=self.member_request(client), assignments=assignments
        )
        self.take(classic.sync(self.group, request, self.now_ms), client)

    def member_request(self, client):
        return MemberRequest(
            member_id=client.member_id, generation=client.generation, instance_id=client.instance_id
        )

    def beat(self, client):
        self.take(classic.heartbeat(self.group, self.member_request(client), self.now_ms), client)

    def step(self, client):
        """What a real client would do next."""
        if client.generation < 0:
            self.join(client)
        elif not client.synced:
            self.sync(client)
        else:
            self.beat(client)

    # --- rules --------------------------------------------------------------------------------

    @precondition(lambda self: len(self.clients) < 8)
    @rule(instance=st.sampled_from([None, None, "a", "b"]))
    def a_client_starts(self, instance):
        self.clients.append(Client(name=next(self.numbers), instance_id=instance))

    @precondition(lambda self: self.idle())
    @rule(data=st.data())
    def a_client_goes_on(self, data):
        self.step(data.draw(st.sampled_from(self.idle())))

    @precondition(lambda self: self.idle())
    @rule()
    def all_clients_go_on(self):
        for client in self.idle():
            if client.ticket is None and not client.fenced:
                self.step(client)

    @precondition(lambda self: self.idle())
    @rule(data=st.data(), metadata=st.sampled_from([b"m", b"n"]))
    def a_client_joins_again(self, data, metadata):
        self.join(data.draw(st.sampled_from(self.idle())), metadata)

    @precondition(lambda self: self.idle())
    @rule(data=st.data())
    def a_client_leaves(self, data):
        client = data.draw(st.sampled_from(self.idle()))
        self.clients.remove(client)
        request = LeaveRequest(member_id=client.member_id, instance_id=client.instance_id)
        self.take(classic.leave(self.group, [request], SETTINGS, self.now_ms))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def a_client_dies(self, data):
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        self.tickets.pop(client.ticket, None)

    @precondition(lambda self: any(client.ticket is not None for client in self.clients))
    @rule(data=st.data())
    def a_client_loses_its_connection(self, data):
        client = data.draw(st.sampled_from([c for c in self.clients if c.ticket is not None]))
        self.tickets.pop(client.ticket, None)
        client.ticket = None

    @rule(ms=st.sampled_from([10, 150, 3_000, 11_000, 25_000]))
    def time_passes(self, ms):
        end_ms = self.now_ms + ms
        while (due_ms := classic.next_deadline_ms(self.group)) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.take(classic.expire(self.group, SETTINGS, self.now_ms))
            after_ms = classic.next_deadline_ms(self.group)
            assert after_ms is None or after_ms > self.now_ms, "a deadline that does not pass"
        self.now_ms = end_ms

    @rule()
    def the_broker_restarts(self):
        before, restored = self.group, ClassicGroup(group_id="g")
        for key, value in self.events:
            restored = classic.replay(decode(key, value))
        assert restored.generation == before.generation
        if before.state not in (ClassicState.PREPARING, ClassicState.EMPTY):
            assert restored == before
        self.group = classic.woken(restored, self.now_ms)
        for client in self.tickets.values():
            client.ticket = None
        self.tickets.clear()

    # --- invariants ---------------------------------------------------------------------------

    @invariant()
    def partitions_have_one_owner(self):
        """Of all who believe they own a partition, the broker takes commits of one at most."""
        for partition in PARTITIONS:
            owners = [c for c in self.clients if partition in c.owned and self.may_commit(c)]
            assert len(owners) <= 1, (partition, owners)

    def may_commit(self, client):
        who = OffsetCommitter(
            member_id=client.member_id, instance_id=client.instance_id, generation=client.generation
        )
        return commit_refusal(self.group, who) is Code.NONE

    @invariant()
    def generations_only_grow(self):
        assert self.group.generation >= self.highest_generation
        self.highest_generation = self.group.generation

    @invariant()
    def nobody_waits_forever(self):
        """Whoever waits is known to the group, and the group has a deadline."""
        held = {m.join_ticket for m in self.group.members.values()}
        held |= {m.sync_ticket for m in self.group.members.values()}
        assert self.tickets.keys() <= held
        if self.tickets:
            assert self.group.phase_deadline_ms is not None

    def teardown(self):
        """Left alone, the group settles, and every partition has exactly one owner."""
        self.clients = [client for client in self.clients if not client.fenced]
        kept = {}
        for client in self.clients:  # two live bearers of one instance id fence each other for ever
            kept[client.instance_id or client.name] = client
        self.clients = list(kept.values())[: SETTINGS.group_max_size]
        for client in list(self.tickets.values()):
            if client not in self.clients:
                self.tickets.pop(client.ticket)
        for _ in range(40):
            for client in self.idle():
                if client.ticket is None:
                    self.step(client)
            self.time_passes(3_000)
        assert not self.tickets
        if self.clients:
            assert self.group.state is ClassicState.STABLE
            assert len(self.group.members) == len(self.clients)
            for partition in PARTITIONS:
                assert sum(partition in c.owned and self.may_commit(c) for c in self.clients) == 1
        else:
            assert self.group.state is ClassicState.EMPTY


TestClassicLife = ClassicLife.TestCase
TestClassicLife.settings = hypothesis_settings(
    max_examples=150, stateful_step_count=40, deadline=None, print_blob=True
)
