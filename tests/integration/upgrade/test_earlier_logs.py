"""A data directory that an earlier version of the broker wrote, opened by this one."""

import json

import pytest
from confluent_kafka import Consumer
from queue_member import ACCEPT
from tests.integration.upgrade.earlier import BEFORE_TABLES, WITH_CAPTURES, run_now
from tests.integration.upgrade.log_contents import LEFT_OPEN, TIMEOUT_S, Log

from headrace.testing.broker import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.xdist_group("upgrade")]

SECURED = {"authenticate": True, "super_users": "carol"}


@pytest.fixture
def as_carol(tmp_path, monkeypatch):
    """Her password; the variables that log her in are set by calling it."""
    password = tmp_path / "password"
    password.write_text("kept from before")
    password.chmod(0o600)

    def log_in(broker):
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
        monkeypatch.setenv("HEADRACE_USER", "carol")
        monkeypatch.setenv("HEADRACE_PASSWORD_FILE", str(password))

    log_in.password = str(password)
    return log_in


@pytest.mark.parametrize(("commit", "end"), [(BEFORE_TABLES, "kill"), (WITH_CAPTURES, "stop")])
def test_a_log_of_an_earlier_version_is_opened_whole_and_goes_on(earlier, tmp_path, commit, end):
    version, broker = earlier(commit), BrokerProcess(tmp_path / "data")
    with version.chosen():
        broker.start()
    before = Log(broker.port)
    before.fill()
    written = before.contents()
    assert len(written.records["orders/0"]) > len(written.committed["orders/0"]) > 500
    assert all(written.groups[name] for name in ("classic-group", "new-group")) and written.quotas
    getattr(broker, end)()
    with broker:
        log = Log(broker.port)
        assert log.contents() == written
        assert log.send_single().base_offset == 0, "a batch that was sent before is known"
        assert log.contents().records["single/0"] == written.records["single/0"]
        _goes_on(log, written)


def _goes_on(log, written):
    log.transaction(LEFT_OPEN, range(3), "commit")  # and so the one that was left open is aborted
    log.send("orders", range(30))
    assert len(log.read("orders", 0, "read_committed")) == len(written.committed["orders/0"]) + 1 + 10
    consumer = Consumer({**log.servers, "group.id": "classic-group", "auto.offset.reset": "error"})
    consumer.subscribe(["places"])
    assert consumer.poll(TIMEOUT_S).offset() == written.groups["classic-group"]["places/0"][0]
    consumer.close()
    member = log.queue_member("two")
    member.fetch()
    assert member.got[0][1] == 1 and member.got[0][3] == 2, "what was released is delivered again"
    assert {offset for _, offset, _, _ in member.got} <= {1, 3, 4}, "accepted and rejected records are done"
    assert member.acknowledge((1, 1, ACCEPT)) == 0
    member.close()


@pytest.mark.parametrize("commit", [BEFORE_TABLES, WITH_CAPTURES])
def test_users_and_permissions_of_an_earlier_version_hold(earlier, tmp_path, as_carol, commit):
    version, data = earlier(commit), tmp_path / "data"
    version.run("users", "add", "carol", "--data", str(data), "--new-password-file", as_carol.password)
    broker = BrokerProcess(data, **SECURED)
    with version.chosen():
        broker.start()
    as_carol(broker)
    version.run("users", "add", "alice", "--new-password-file", as_carol.password)
    version.run("acls", "add", "alice", "--operation", "read", "--topic", "orders", "--group", "billing")
    users, acls = (version.run(each, "list", "--json") for each in ("users", "acls"))
    assert "alice" in users and "billing" in acls
    broker.stop()
    with broker:
        assert json.loads(run_now("users", "list", "--json")) == json.loads(users)
        assert json.loads(run_now("acls", "list", "--json")) == json.loads(acls)
