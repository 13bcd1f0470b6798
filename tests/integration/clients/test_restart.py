"""What must survive a stop, and a crash, of the broker; each test has a log of its own."""

from collections.abc import Callable, Iterator

import pytest
from clients.driver import Driver, DriverError, Membership, Message
from clients.launch import CLIENTS
from clients.pool import ClientPool, fresh
from clients.targets import TARGETS, Target, open_target
from clients.waiting import wait_until

RESTARTS = [
    pytest.param(lambda target: target.restart(), id="stop"),
    pytest.param(lambda target: (target.kill(), target.restart()), id="crash"),
]


@pytest.fixture(scope="module", params=TARGETS)
def own_target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    target = open_target(request.param, tmp_path_factory.mktemp("own-log"))
    yield target
    target.close()


@pytest.fixture(scope="module")
def own_clients(own_target: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientPool]:
    pool = ClientPool(own_target.bootstrap, tmp_path_factory.mktemp("own-clients"))
    yield pool
    pool.close()


@pytest.mark.parametrize("restart", RESTARTS)
def test_records_offsets_topics_and_configurations_survive(
    own_target: Target, own_clients: ClientPool, restart: Callable[[Target], object]
):
    topics = {name: fresh(name) for name in CLIENTS}
    groups = {name: fresh("group") for name in CLIENTS}
    for number, (name, topic) in enumerate(topics.items()):
        client = own_clients[name]
        client.create_topic(topic, 2, {"retention.ms": str(10_000_000 + number)})
        client.produce(topic, [Message(value=str(n).encode(), partition=n % 2) for n in range(20)])
        client.alter_offsets(groups[name], topic, {0: number, 1: 5})
    restart(own_target)
    for number, (name, topic) in enumerate(topics.items()):
        client = own_clients[name]
        wait_until(lambda client=client: _answers(client))
        assert client.partition_count(topic) == 2
        assert client.config(topic)["retention.ms"] == str(10_000_000 + number)
        wait_until(lambda c=client, n=name, t=topic: _committed(c, groups[n], t) == {0: number, 1: 5})
        found = client.read(topic, {0: 0, 1: 0}, 20)
        assert sorted(int(record.value) for record in found) == list(range(20))


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_member_goes_on_reading_after_the_broker_came_back(
    own_target: Target, own_clients: ClientPool, name: str, restart: Callable[[Target], object]
):
    client, topic, group = own_clients[name], fresh("topic"), fresh("group")
    client.create_topic(topic)
    client.produce(topic, [Message(value=b"before", partition=0)])
    handle = client.join(Membership(group=group, topics=[topic]))
    found: list[bytes | None] = []

    def seen() -> list[bytes | None]:
        found.extend(record.value for record in client.member(handle).records)
        return found

    try:
        wait_until(lambda: seen() == [b"before"])
        client.commit(handle, topic, {0: 1})
        restart(own_target)
        wait_until(lambda: _accepted(client, topic, Message(value=b"after", partition=0)))
        wait_until(lambda: b"after" in seen(), timeout_s=30, about=lambda: (found, client.member(handle)))
    finally:
        client.leave(handle)
    assert found.count(b"before") == 1


def _answers(client: Driver) -> bool:
    try:
        return bool(client.topics())
    except DriverError:
        return False


def _committed(client: Driver, group: str, topic: str) -> dict[int, int] | None:
    """None while the coordinator is still loading."""
    try:
        return client.committed(group, topic)
    except DriverError:
        return None


def _accepted(client: Driver, topic: str, message: Message) -> bool:
    try:
        client.produce(topic, [message])
    except DriverError:
        return False
    return True
