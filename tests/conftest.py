"""Shared by all tiers: one local Spark a worker, a log that is ours or Kafka, what may not be skipped."""

import os
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest
from hypothesis import settings

from headrace.client import Connection

# No deadlines: a slow machine is no failure. A failing case prints how to run it again.
settings.register_profile("headrace", deadline=None, print_blob=True)
settings.load_profile("headrace")


@pytest.fixture(scope="session")
def spark():
    """One Spark for all tests of a worker; tests that use it are in the xdist group "spark"."""
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
