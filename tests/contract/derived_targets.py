"""Every target of derived systems, for the suites that all of them have to pass."""

import itertools
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.capture.mysql import MysqlAddress, MysqlConnection
from headrace.capture.postgres import PostgresAddress, PostgresConnection
from headrace.derived import Follow, TargetSpec, delta, open_target, opensearch, redis, search, table
from headrace.derived.target import Target
from headrace.testing.mysql_process import PASSWORD as MYSQL_PASSWORD
from headrace.testing.postgres_process import PASSWORD

_numbers = itertools.count(1)
Make = Callable[[pytest.FixtureRequest, Path], TargetSpec]


def _sqlite_table(request: pytest.FixtureRequest, folder: Path) -> TargetSpec:
    return table(f"sqlite:///{folder / 'derived.db'}", "customers")


def _sqlite_search(request: pytest.FixtureRequest, folder: Path) -> TargetSpec:
    return search(f"sqlite:///{folder / 'search.db'}", "customers", fields=["name", "city"])


def _postgres(request: pytest.FixtureRequest, folder: Path) -> TargetSpec:
    server, name = request.getfixturevalue("postgres_process"), f"derived_{next(_numbers)}"
    with PostgresConnection(PostgresAddress.parse(server.url()), PASSWORD) as admin:
        admin.query(f"CREATE DATABASE {name}")
    return table(server.url(name), "the customers")


def _redis(request: pytest.FixtureRequest, folder: Path) -> TargetSpec:
    return redis(request.getfixturevalue("redis").url(next(_numbers)), prefix="customer*[:")


def _redis_hashes(request: pytest.FixtureRequest, folder: Path) -> TargetSpec:
    return redis(request.getfixturevalue("redis").url(next(_numbers)), prefix="customer:", values="hash")


def _delta(request: pytest.FixtureRequest, folder: Path) -> TargetSpec:
    return delta(str(folder / "lake" / "the customers"), every_s=0)


def _mariadb(request: pytest.FixtureRequest, folder: Path) -> TargetSpec:
    server, name = request.getfixturevalue("mariadb"), f"derived_{next(_numbers)}"
    with MysqlConnection(MysqlAddress.parse(server.url("mysql")), MYSQL_PASSWORD) as admin:
        admin.query(f"CREATE DATABASE {name}")
    return table(server.url(name), "the `customers`")


def _opensearch(request: pytest.FixtureRequest, folder: Path) -> TargetSpec:
    return opensearch(request.getfixturevalue("opensearch").url(), f"customers-{uuid.uuid4()}")


TARGETS: dict[str, Make] = {
    "sqlite table": _sqlite_table,
    "sqlite search": _sqlite_search,
    "postgres": _postgres,
    "redis": _redis,
    "redis hashes": _redis_hashes,
    "delta": _delta,
    "mariadb": _mariadb,
    "opensearch": _opensearch,
}
_SLOW = ("opensearch",)  # a Java that starts
NAMES = [pytest.param(each, marks=pytest.mark.slow) if each in _SLOW else each for each in TARGETS]


def opened(spec: TargetSpec, name: str = "customers") -> Target:
    return open_target(Follow(name=name, topic="customers", into=spec))
