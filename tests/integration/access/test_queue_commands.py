"""`headrace queues` and `headrace groups` on a broker that wants TLS and a login."""

import contextvars
import json
import uuid

import pytest
from access.conftest import PASSWORDS

from headrace.cli.main import run
from headrace.client.connect.channel import Channel
from headrace.client.connect.login import Security
from headrace.wire import Api

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]


@pytest.fixture(scope="module")
def queue(secured):
    """A queue: it begins with its first member."""
    name = "queue-of-commands"
    secured.create(name)
    security = Security.of(secured.as_user("admin"))
    channel = Channel("127.0.0.1", secured.process.port, client_id="t", timeout_ms=20_000, security=security)
    joining = {"group_id": name, "member_id": str(uuid.uuid4()), "member_epoch": 0, "rack_id": None}
    answer = channel.request(Api.SHARE_GROUP_HEARTBEAT, 1, {**joining, "subscribed_topic_names": [name]})
    assert answer.error_code == 0
    channel.close()
    return name


def command(secured, *arguments, user="admin", password=None, ca=None, mechanism="SCRAM-SHA-512"):
    """Runs a command as a process of its own would: nothing is remembered from the one before."""
    file = secured.pki.path / f"{user}.password"
    file.write_text((PASSWORDS[user] if password is None else password) + "\n")
    identity = ["--user", user, "--password-file", str(file), "--sasl-mechanism", mechanism]
    identity += ["--tls-ca", str(ca or secured.pki.ca), "-b", secured.bootstrap]
    return contextvars.copy_context().run(run, [*arguments, *identity])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_queues_are_listed_and_described_after_a_login(secured, queue, mechanism, capsys):
    assert command(secured, "queues", "list", "--json", mechanism=mechanism) == 0
    assert queue in [row["queue"] for row in json.loads(capsys.readouterr().out)["queues"]]
    assert command(secured, "queues", "describe", queue, "--json", mechanism=mechanism) == 0
    assert json.loads(capsys.readouterr().out)["partitions"][0]["topic"] == queue


def test_queues_are_among_the_groups_and_described_by_their_own_command(secured, queue, capsys):
    assert command(secured, "groups", "list", "--json") == 0
    rows = {row["group"]: row["type"] for row in json.loads(capsys.readouterr().out)["groups"]}
    assert rows[queue] == "share"
    assert command(secured, "groups", "describe", queue) == 2
    assert f"headrace queues describe {queue}" in capsys.readouterr().err


def test_a_wrong_password_and_a_broker_that_is_not_trusted_are_told(secured, tmp_path_factory, capsys):
    assert command(secured, "queues", "list", password="wrong") == 1
    assert "login" in capsys.readouterr().err
    another = type(secured.pki)(tmp_path_factory.mktemp("another"))
    assert command(secured, "queues", "list", ca=another.ca) == 1
    assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().err
