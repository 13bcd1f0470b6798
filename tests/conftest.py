"""Shared by all tiers: one local Spark a worker, a log that is ours or Kafka, what may not be skipped."""

import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings
from tests.inherited_signals import give_children_defaults
from tests.property.examples import examples

from headrace.client import Connection

give_children_defaults()

# A slow machine is no failure, neither of a case nor of drawing one. A failing case prints how to run it
# again.
settings.register_profile(
    "headrace",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=examples(50),
)
settings.load_profile("headrace")


# Groups of tests, each run by one worker, in the order in which they are begun: the longest
# first, so that no worker is left alone with it at the end. Spark's tests are two groups, each
# on a Spark of its own: in one, they would be at work when all others have ended.
GROUPS = (
    "machines",
    "spark",
    "applications",
    "drivers",
    "stores",
    "crash",
    "clients",
    "access",
    "cli",
    "console",
    "hooks",
    "browser",
    "fuzz",
    "postgres",
    "mysql",
    "capture",
    "derived",
    "broker",
    "queues",
    "transactions",
    "parity",
    "kafka",
    "connect",
    "connections",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Keeps the tests' modules as pytest rewrites them, also where PYTHONDONTWRITEBYTECODE is set.

    Rewriting them all takes longer than the rest of collecting, and each worker collects everything.
    Only now, and not for the processes that tests start: the folders of tests stay as these leave them.
    What is collected is there to the end: the garbage collector need not look at millions of objects
    again and again, neither while they are made nor in the tests.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    gc.disable()
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = before
        gc.freeze()
        gc.enable()


# Of these the default run has the tests on our log; on a Kafka they are the campaign's. That the
# command line speaks to a Kafka is shown by the tests of topics; that applications do, and Spark's
# source, by `app/test_on_kafka.py` and the tests of feeds; that sinks do, by theirs.
ON_KAFKA_FOR_LONG = (
    "tests/integration/cli/test_cli_records.py",
    "tests/integration/cli/test_cli_groups.py",
    "tests/integration/app/test_rescaling.py",
    "tests/integration/test_source.py",
    "tests/integration/views/test_dead_letters.py",
)


# Where all tests use the same few servers, which every worker would start for itself.
SHARING = {
    "tests/integration/access/": "access",
    "tests/integration/broker/": "broker",
    "tests/integration/capture/": "capture",
    "tests/integration/cli/": "cli",
    "tests/integration/console/": "console",
    "tests/integration/derived/": "derived",
    "tests/integration/hooks/": "hooks",
    "tests/integration/test_queues.py": "queues",
    "tests/integration/test_transactions.py": "transactions",
}


@pytest.hookimpl(wrapper=True, tryfirst=True)  # marks before xdist looks at groups, sorts behind everybody
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Tests that share servers are a group; groups come before all others."""
    for item in items:
        if item.get_closest_marker("kafka") and item.nodeid.startswith(ON_KAFKA_FOR_LONG):
            item.add_marker(pytest.mark.slow)
        group = None if item.get_closest_marker("xdist_group") else _shared_by(item)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
    yield
    items.sort(key=_turn)


def _shared_by(item: pytest.Item) -> str | None:
    """The group of a test that says none itself."""
    if item.nodeid.startswith("tests/integration/clients/"):
        return "clients"
    if item.get_closest_marker("kafka"):
        return "kafka"
    if "spark" in getattr(item, "fixturenames", ()):
        return "spark"
    return next((group for place, group in SHARING.items() if item.nodeid.startswith(place)), None)


def _turn(item: pytest.Item) -> int:
    group = item.get_closest_marker("xdist_group")
    return GROUPS.index(group.args[0]) if group and group.args[0] in GROUPS else len(GROUPS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The files that took longest, where workers ran many: what to look at when the run gets long."""
    if not terminalreporter.config.getoption("numprocesses", None):
        return
    took: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for each in reports:
            if isinstance(each, pytest.TestReport):
                took[each.nodeid.partition("::")[0]] += each.duration
    terminalreporter.section("slowest files, with their fixtures")
    for file, seconds in took.most_common(10):
        terminalreporter.line(f"{seconds:7.1f} s  {file}")


@pytest.fixture(scope="session")
def spark():
    """One Spark for all tests of a worker; tests that use it are in the group "spark" or "applications"."""
    from headrace.streams import local_spark, register

    session = local_spark("tests", settings={"spark.sql.streaming.pollingDelay": "10ms"})
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def our_log(tmp_path_factory) -> Iterator[Connection]:
    """A `headrace broker` process."""
    from headrace.testing.broker import BrokerProcess

    with BrokerProcess(tmp_path_factory.mktemp("log")) as broker:
        yield Connection(bootstrap_servers=broker.bootstrap, retry_timeout_ms=10_000)


@pytest.fixture(scope="session")
def kafka_log() -> Iterator[Connection]:
    """A real Kafka; skips where it cannot be had."""
    from headrace.testing.kafka import KafkaServer, PeerUnavailable

    try:
        server = KafkaServer({"group.initial.rebalance.delay.ms": "0"}, quick=True)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield Connection(bootstrap_servers=server.bootstrap, retry_timeout_ms=10_000)


@pytest.fixture(scope="session")
def postgres():
    """A real PostgreSQL; skips where it cannot be had."""
    from headrace.testing.kafka import PeerUnavailable
    from headrace.testing.postgres import PostgresServer

    try:
        server = PostgresServer()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture(scope="session")
def postgres_process():
    """A real PostgreSQL on a port, for tests that make databases in it; skips where it cannot be had."""
    from headrace.testing.kafka import PeerUnavailable
    from headrace.testing.postgres_process import PostgresProcess

    try:
        server = PostgresProcess()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture(scope="session")
def mariadb():
    """A real MariaDB, for tests that make databases in it; skips where it cannot be had."""
    from headrace.testing.kafka import PeerUnavailable
    from headrace.testing.mysql_process import MysqlProcess

    try:
        server = MysqlProcess("mariadb")
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture(scope="session")
def opensearch():
    """A real OpenSearch; skips where it cannot be had."""
    from headrace.errors import ConfigError
    from headrace.testing.kafka import PeerUnavailable
    from headrace.testing.opensearch import OpenSearchProcess

    try:
        server = OpenSearchProcess()
    except (PeerUnavailable, ConfigError) as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture(scope="session")
def redis():
    """A real Redis or Valkey; skips where it cannot be had."""
    from headrace.testing.kafka import PeerUnavailable
    from headrace.testing.redis import RedisProcess

    try:
        server = RedisProcess()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield server


@pytest.fixture
def without_real_disk() -> Callable[[str], NoReturn]:
    """Skips a test that has to mount a file system and cannot.

    Where HEADRACE_REQUIRE_REAL_DISKS is 1 such a test fails instead: what fails on
    real disks is not to be skipped unnoticed where it could have run.
    """

    def give_up(reason: str) -> NoReturn:
        if os.environ.get("HEADRACE_REQUIRE_REAL_DISKS") == "1":
            pytest.fail(f"{reason}; unset HEADRACE_REQUIRE_REAL_DISKS to skip this")
        pytest.skip(reason)

    return give_up


@pytest.fixture(params=["ours", pytest.param("kafka", marks=pytest.mark.kafka)])
def log(request) -> Connection:
    """The same test on both: nothing above `client` may notice which it is."""
    return request.getfixturevalue("our_log" if request.param == "ours" else "kafka_log")
