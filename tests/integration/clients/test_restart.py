"""What must survive a stop, and a crash, of the broker; each test has a log of its own."""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from clients.driver import DriverError, Membership, Message
from clients.launch import CLIENTS
from clients.pool import ClientPool, fresh
from clients.targets import TARGETS, Target, open_target
from clients.waiting import wait_until

T = TypeVar("T")

RESTARTS = [
    pytest.param(lambda target: target.restart(), id="stop"),
    pytest.param(lambda target: (target.kill(), target.restart()), id="crash"),
]


def until_accepted(call: Callable[[], T], *, timeout_s: float = 60) -> T:
    """Repeat while the client cannot reach a broker, or a coordinator, that is coming back."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return call()
        except DriverError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


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
        until_accepted(
            lambda c=client, t=topic, n=number: c.create_topic(t, 2, {"retention.ms": str(n + 10_000_000)})
        )
        client.produce(topic, [Message(value=str(n).encode(), partition=n % 2) for n in range(20)])
        until_accepted(
            lambda c=client, g=groups[name], t=topic, n=number: c.alter_offsets(g, t, {0: n, 1: 5})
        )
    restart(own_target)
    for name, topic in topics.items():
        # Java asks first: librdkafka 2.16 dies (SIGSEGV) when a coordinator that is still loading answers.
        until_accepted(lambda g=groups[name], t=topic: own_clients["java"].committed(g, t))
    for number, (name, topic) in enumerate(topics.items()):
        client = own_clients[name]
        assert until_accepted(lambda c=client, t=topic: c.partition_count(t)) == 2
        assert client.config(topic)["retention.ms"] == str(10_000_000 + number)
        assert until_accepted(lambda c=client, n=name, t=topic: c.committed(groups[n], t)) == {
            0: number,
            1: 5,
        }
        found = client.read(topic, {0: 0, 1: 0}, 20)
        assert sorted(int(record.value) for record in found) == list(range(20))


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_member_goes_on_reading_after_the_broker_came_back(
    own_target: Target, own_clients: ClientPool, name: str, restart: Callable[[Target], object]
):
    client, topic, group = own_clients[name], fresh("topic"), fresh("group")
    until_accepted(lambda: client.create_topic(topic))
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
        until_accepted(lambda: client.produce(topic, [Message(value=b"after", partition=0)]))
        wait_until(lambda: b"after" in seen(), about=lambda: (found, client.member(handle)))
    finally:
        client.leave(handle)
    assert found.count(b"before") == 1
