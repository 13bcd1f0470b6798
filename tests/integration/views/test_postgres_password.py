"""A store in PostgreSQL whose URL says where the password is, on a server that asks for it."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.errors import HeadraceError
from headrace.testing.kafka import PeerUnavailable
from headrace.testing.postgres_process import PASSWORD, PostgresProcess
from headrace.views import open_store


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresProcess]:
    try:
        with PostgresProcess() as running:
            yield running
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


def test_the_password_is_read_from_the_environment_or_a_file_by_the_process_that_connects(server, tmp_path):
    (tmp_path / "password").write_text(PASSWORD + "\n")
    for url in (server.url(), server.url(password=f"file:{tmp_path / 'password'}")):
        with closing(open_store(url)) as store:
            assert store.views() == []
            assert "password" not in store.name


@pytest.mark.parametrize("reference", ["env:HEADRACE_NOBODY_SET_THIS", "file:/nowhere/at/all"])
def test_a_reference_that_leads_nowhere_is_named(server, reference):
    with pytest.raises(HeadraceError, match=reference):
        open_store(server.url(password=reference))


def test_a_wrong_password_is_refused_without_being_repeated(server, monkeypatch):
    monkeypatch.setenv("HEADRACE_TEST_WRONG", "pssst")
    with pytest.raises(HeadraceError) as refused:
        open_store(server.url(password="env:HEADRACE_TEST_WRONG"))
    assert "pssst" not in str(refused.value)
