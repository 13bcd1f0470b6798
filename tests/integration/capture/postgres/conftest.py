"""A real PostgreSQL for the tests of its capture: one by default, every version that is here if asked."""

import itertools
from collections.abc import Iterator, Mapping

import pytest
from tests.integration.capture.postgres.databases import Database

from headrace.testing.kafka import PeerUnavailable
from headrace.testing.postgres_process import PostgresProcess, find_versions

_numbers = itertools.count(1)
_VERSIONS = list(find_versions()) or [0]
_MARKS = [[], *([pytest.mark.slow] for _ in _VERSIONS[1:])]


def started(
    version: int | None = None, files: Mapping[str, bytes] | None = None, **settings: str
) -> PostgresProcess:
    """A server, or the reason why the test is skipped."""
    try:
        return PostgresProcess(version or None, settings, files)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(
    scope="session",
    params=[pytest.param(each, marks=marks) for each, marks in zip(_VERSIONS, _MARKS, strict=True)],
)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresProcess]:
    with started(request.param) as running:
        yield running


@pytest.fixture
def own_server() -> Iterator[PostgresProcess]:
    """One that the test may stop and replace."""
    with started(max_slot_wal_keep_size="16MB", max_wal_size="32MB", min_wal_size="32MB") as running:
        yield running


@pytest.fixture
def database(server: PostgresProcess) -> Iterator[Database]:
    """An empty one, which is dropped at the end with everything that was set up for it."""
    with Database(server, f"test_{next(_numbers)}") as made:
        yield made
