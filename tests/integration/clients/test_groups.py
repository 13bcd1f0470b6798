"""Consumer groups: sharing partitions, rebalances, committed offsets."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from clients.driver import DriverError, Membership, MemberState, Message, Record
from clients.launch import CLIENTS
from clients.pool import ClientPool, fresh
from clients.remote import RemoteDriver
from clients.targets import SERVER_SIDE_SESSION_TIMEOUT_MS
from clients.waiting import wait_until

PARTITIONS = 4
DEAD_AFTER_MS = 10_000  # a live member is never silent for so long, whatever else the machine does

Places = frozenset[tuple[str, int]]


class Member:
    """One member of a group in a client's process, with everything it has received so far."""

    def __init__(self, client: RemoteDriver, membership: Membership) -> None:
        self.client = client
        self.records: list[Record] = []
        self._handle = client.join(membership)

    def look(self) -> MemberState:
        state = self.client.member(self._handle)
        self.records += state.records
        return state

    def values(self) -> list[bytes | None]:
        self.look()
        return [record.value for record in self.records]

    def commit(self, topic: str, offsets: dict[int, int]) -> None:
        self.client.commit(self._handle, topic, offsets)

    def leave(self) -> None:
        self.client.leave(self._handle)


class Members:
    """Opens members, and takes those still there out of their groups when the test ends."""

    def __init__(self) -> None:
        self._open: list[Member] = []

    def __call__(self, client: RemoteDriver, membership: Membership) -> Member:
        member = Member(client, membership)
        self._open.append(member)
        return member

    def leave(self, member: Member) -> None:
        self._open.remove(member)
        member.leave()

    def close(self) -> None:
        for member in list(self._open):
            if member.client.process.alive:
                self.leave(member)


@pytest.fixture
def join() -> Iterator[Members]:
    members = Members()
    yield members
    members.close()


def protocols() -> list[object]:
    """Every client with the classic protocol, and those that know the newer one with that."""
    newer = ("librdkafka", "java")
    pairs = [(name, "classic") for name in CLIENTS] + [(name, "consumer") for name in newer]
    return [pytest.param(pair, id="-".join(pair)) for pair in pairs]


@pytest.fixture(params=protocols())
def speaker(request: pytest.FixtureRequest, clients: ClientPool) -> tuple[RemoteDriver, str]:
    """A client and the group protocol it is to speak."""
    name, protocol = request.param
    return clients[name], protocol


def all_of(topic: str, partitions: int = PARTITIONS) -> Places:
    return frozenset((topic, partition) for partition in range(partitions))


def wait_shared(members: list[Member], wanted: Places) -> list[Places]:
    """Wait until the members own all of `wanted`, each partition once and everyone at least one."""

    def settled() -> bool:
        owned = [member.look().assigned for member in members]
        return all(owned) and frozenset().union(*owned) == wanted and sum(map(len, owned)) == len(wanted)

    wait_until(settled, about=lambda: [(member.client.name, member.look()) for member in members])
    return [member.look().assigned for member in members]


def fill(client: RemoteDriver, topic: str, count: int, *, first: int = 0) -> list[bytes]:
    values = [str(n).encode() for n in range(first, first + count)]
    messages = [Message(value=v, partition=n % PARTITIONS) for n, v in enumerate(values)]
    client.produce(topic, messages)
    return values


def test_members_share_the_partitions_as_they_join_and_leave(
    speaker: tuple[RemoteDriver, str], new_topic: Callable[..., str], group: str, join: Members
):
    client, protocol = speaker
    topic = new_topic(PARTITIONS)
    membership = Membership(group=group, topics=[topic], protocol=protocol)
    first = join(client, membership)
    wait_shared([first], all_of(topic))
    second = join(client, membership)
    assert [len(owned) for owned in wait_shared([first, second], all_of(topic))] == [2, 2]
    third = join(client, membership)
    wait_shared([first, second, third], all_of(topic))
    join.leave(first)
    wait_shared([second, third], all_of(topic))


def test_a_group_that_shares_the_work_reads_every_record(
    speaker: tuple[RemoteDriver, str], new_topic: Callable[..., str], group: str, join: Members
):
    client, protocol = speaker
    topic = new_topic(PARTITIONS)
    membership = Membership(group=group, topics=[topic], protocol=protocol)
    members = [join(client, membership), join(client, membership)]
    wait_shared(members, all_of(topic))
    sent = fill(client, topic, 40)
    wait_until(lambda: sum(len(member.values()) for member in members) >= 40)
    assert sorted(v for member in members for v in member.values()) == sorted(sent)
    assert all(member.records for member in members)


def test_partitions_of_a_member_that_died_go_to_the_others(
    speaker: tuple[RemoteDriver, str],
    clients: ClientPool,
    new_topic: Callable[..., str],
    group: str,
    join: Members,
):
    client, protocol = speaker
    topic = new_topic(PARTITIONS)
    membership = Membership(group=group, topics=[topic], protocol=protocol, session_timeout_ms=DEAD_AFTER_MS)
    doomed_process = clients.start(client.name)
    doomed = join(doomed_process, membership)
    wait_shared([doomed], all_of(topic))
    survivor = join(client, membership)
    wait_shared([doomed, survivor], all_of(topic))
    doomed_process.die()
    wait_shared([survivor], all_of(topic))
    assert SERVER_SIDE_SESSION_TIMEOUT_MS < 60_000, "or the wait above is too short to see it"


def test_a_static_member_that_restarts_causes_no_rebalance(
    speaker: tuple[RemoteDriver, str], new_topic: Callable[..., str], group: str, join: Members
):
    client, protocol = speaker
    topic = new_topic(PARTITIONS)

    def membership(name: str) -> Membership:
        return Membership(
            group=group, topics=[topic], protocol=protocol, instance_id=name, session_timeout_ms=25_000
        )

    stays = join(client, membership("a"))
    wait_shared([stays], all_of(topic))
    restarts = join(client, membership("b"))
    before = wait_shared([stays, restarts], all_of(topic))
    rebalances = stays.look().rebalances
    join.leave(restarts)
    back = join(client, membership("b"))
    wait_until(lambda: back.look().assigned == before[1], about=back.look)
    # Two rounds of heartbeats: by then it would have been told of a rebalance.
    sent = fill(client, topic, 40)
    wait_until(lambda: len(stays.values()) + len(back.values()) >= 40)
    assert sorted(stays.values() + back.values()) == sorted(sent)
    assert stays.look().assigned == before[0]
    assert stays.look().rebalances == rebalances


def test_a_second_member_with_the_same_instance_id_does_not_share_but_replace(
    clients: ClientPool, new_topic: Callable[..., str], group: str, join: Members
):
    topic = new_topic(PARTITIONS)
    client = clients["java"]
    membership = Membership(group=group, topics=[topic], instance_id="only", session_timeout_ms=25_000)
    first = join(client, membership)
    wait_shared([first], all_of(topic))
    second = join(client, membership)
    wait_until(lambda: second.look().assigned == all_of(topic), about=second.look)
    wait_until(lambda: "Fenced" in (first.look().error or ""), about=first.look)
    with contextlib.suppress(DriverError):  # Kafka's client may say once more that it was fenced
        join.leave(first)


def test_a_consumer_that_restarts_goes_on_where_its_group_committed(
    speaker: tuple[RemoteDriver, str], new_topic: Callable[..., str], group: str, join: Members
):
    client, protocol = speaker
    topic = new_topic(PARTITIONS)
    membership = Membership(group=group, topics=[topic], protocol=protocol)
    sent = fill(client, topic, 40)
    first = join(client, membership)
    wait_until(lambda: set(first.values()) == set(sent))
    first.commit(topic, {0: 10, 1: 7, 2: 0})
    assert client.committed(group, topic) == {0: 10, 1: 7, 2: 0}
    join.leave(first)
    again = join(client, membership)
    left = [v for n, v in enumerate(sent) if n // PARTITIONS >= {0: 10, 1: 7, 2: 0, 3: 0}[n % PARTITIONS]]
    wait_until(lambda: len(set(again.values())) >= len(left), about=again.look)
    assert set(again.values()) == set(left)


def test_independent_groups_each_see_everything(
    speaker: tuple[RemoteDriver, str], new_topic: Callable[..., str], join: Members
):
    client, protocol = speaker
    topic = new_topic(PARTITIONS)
    groups = [fresh("group") for _ in range(2)]
    members = [join(client, Membership(group=g, topics=[topic], protocol=protocol)) for g in groups]
    sent = fill(client, topic, 40)
    for member in members:
        wait_until(lambda member=member: set(member.values()) == set(sent), about=member.look)


def test_a_group_reads_several_topics_and_partitions_added_later(
    speaker: tuple[RemoteDriver, str], new_topic: Callable[..., str], group: str, join: Members
):
    client, protocol = speaker
    topics = [new_topic(1), new_topic(2)]
    member = join(client, Membership(group=group, topics=topics, protocol=protocol))
    wait_shared([member], all_of(topics[0], 1) | all_of(topics[1], 2))
    client.create_partitions(topics[0], 2)
    wait_shared([member], all_of(topics[0], 2) | all_of(topics[1], 2))


@pytest.mark.parametrize("name", ["librdkafka", "kafka_python", "java"])
def test_a_cooperative_rebalance_leaves_kept_partitions_with_their_owner(
    clients: ClientPool, new_topic: Callable[..., str], group: str, join: Members, name: str
):
    client, topic = clients[name], new_topic(PARTITIONS)
    membership = Membership(group=group, topics=[topic], assignor="cooperative-sticky")
    first = join(client, membership)
    wait_shared([first], all_of(topic))
    second = join(client, membership)
    kept, moved = wait_shared([first, second], all_of(topic))
    assert (len(kept), len(moved)) == (2, 2)
    assert first.look().revoked == moved  # and at no time what it kept


def test_members_of_all_four_clients_share_one_classic_group(
    clients: ClientPool, new_topic: Callable[..., str], group: str, join: Members
):
    topic = new_topic(PARTITIONS)
    members = []
    for name in CLIENTS:
        members.append(join(clients[name], Membership(group=group, topics=[topic])))
        wait_shared(members, all_of(topic))
    sent = fill(clients["librdkafka"], topic, 40)
    wait_until(lambda: sum(len(member.values()) for member in members) >= 40)
    assert sorted(v for member in members for v in member.values()) == sorted(sent)
    for member in members:
        assert len(member.values()) == 10, member.client.name


def test_members_of_both_clients_share_one_server_side_group(
    clients: ClientPool, new_topic: Callable[..., str], group: str, join: Members
):
    topic = new_topic(PARTITIONS)
    membership = Membership(group=group, topics=[topic], protocol="consumer")
    members = [join(clients[name], membership) for name in ("librdkafka", "java")]
    wait_shared(members, all_of(topic))


def test_what_one_client_committed_every_other_sees(
    clients: ClientPool, new_topic: Callable[..., str], group: str, join: Members
):
    topic = new_topic(PARTITIONS)
    for offset, name in enumerate(CLIENTS, start=1):
        member = join(clients[name], Membership(group=group, topics=[topic]))
        wait_shared([member], all_of(topic))
        member.commit(topic, {0: offset, 3: offset * 10})
        for other in CLIENTS:
            assert clients[other].committed(group, topic) == {0: offset, 3: offset * 10}, other
        join.leave(member)
