"""Real servers for the tests of capture: MariaDB by default, MySQL where it is here and asked for."""

import itertools
from collections.abc import Iterator

import pytest
from tests.integration.capture.mysql.databases import Database

from headrace.testing.kafka import PeerUnavailable
from headrace.testing.mysql_process import MysqlProcess

_numbers = itertools.count(1)


def started(product: str = "mariadb", **settings: str) -> MysqlProcess:
    """A server, or the reason why the test is skipped."""
    try:
        return MysqlProcess(product, {name.replace("_", "-"): value for name, value in settings.items()})
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session", params=["mariadb", pytest.param("mysql", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest) -> Iterator[MysqlProcess]:
    with started(request.param) as running:
        yield running


@pytest.fixture(params=["mariadb", pytest.param("mysql", marks=pytest.mark.slow)])
def own_server(request: pytest.FixtureRequest) -> Iterator[MysqlProcess]:
    """One that the test may stop and replace."""
    with started(request.param) as running:
        yield running


@pytest.fixture
def database(server: MysqlProcess) -> Iterator[Database]:
    """An empty one, which is dropped at the end."""
    with Database(server, f"test_{next(_numbers)}") as made:
        yield made
