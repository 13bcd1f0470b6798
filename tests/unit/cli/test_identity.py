"""Who a command is: asked once, and the same for every client that it makes."""

import io

import pytest

from headrace.cli import identity as cli_identity
from headrace.client.connect.identity import PASSWORD_VARIABLE, Identity


@pytest.fixture
def given(monkeypatch):
    """What the options of a command gave; nothing of it is left afterwards."""
    monkeypatch.setenv(PASSWORD_VARIABLE, "")  # so that what is set meanwhile is taken back
    monkeypatch.delenv(PASSWORD_VARIABLE)
    token = cli_identity._given.set(Identity(user="alice", password_file="-"))
    yield
    cli_identity._given.reset(token)


def test_a_password_from_the_input_serves_every_client_of_the_command(given, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\nthe first record\n"))
    passwords = [cli_identity.identity().client_properties()["sasl.password"] for _ in range(3)]
    assert passwords == ["secret"] * 3
