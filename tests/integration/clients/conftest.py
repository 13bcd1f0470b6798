"""Fixtures of the clients' contract: a target, a client, another client, a topic."""

from collections.abc import Callable, Iterator

import pytest

from clients.driver import DriverError, Unsupported
from clients.launch import CLIENTS
from clients.pool import ClientPool, fresh
from clients.remote import RemoteDriver
from clients.targets import TARGETS, Target, open_target
from clients.waiting import wait_until

_TARGET = pytest.StashKey[Target]()


@pytest.fixture(scope="session", params=TARGETS)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The log under test, shared by all tests that leave it running."""
    opened = open_target(request.param, tmp_path_factory.mktemp("log"))
    request.config.stash[_TARGET] = opened
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def clients(target: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientPool]:
    """All clients, connected to the target."""
    pool = ClientPool(target.bootstrap, tmp_path_factory.mktemp("clients"))
    yield pool
    pool.close()


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, clients: ClientPool) -> RemoteDriver:
    """Each client in turn."""
    return clients[request.param]


@pytest.fixture
def new_topic(clients: ClientPool) -> Callable[..., str]:
    """Creates a topic under a fresh name: new_topic(partitions, **config with _ for dots).

    Kept for ever unless told otherwise, since many tests write records of long ago.
    """

    def create(partitions: int = 1, **config: object) -> str:
        name = fresh("topic")
        config = {"retention_ms": -1, **config}
        overrides = {key.replace("_", "."): str(value) for key, value in config.items()}
        admin = clients["librdkafka"]
        admin.create_topic(name, partitions, overrides)
        wait_until(lambda: _partitions(admin, name) == partitions)
        return name

    return create


def _partitions(client: RemoteDriver, topic: str) -> int:
    """0 while a broker that creates topics in the background does not know it yet."""
    try:
        return client.partition_count(topic)
    except DriverError:
        return 0


@pytest.fixture
def group() -> str:
    return fresh("group")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """What a client cannot do at all is a skip that says so."""
    try:
        return (yield)
    except Unsupported as error:
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failure shows what the log printed last."""
    report = yield
    if report.failed and _TARGET in item.config.stash:
        report.sections.append(("log of the target", item.config.stash[_TARGET].output()[-4000:]))
    return report
