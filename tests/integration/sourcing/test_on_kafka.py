"""Entities on a real Kafka: commands, take-over, reactions, snapshots, projections, and forgetting."""

import contextlib
import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.sourcing.serving import ServerProcess, entities_at, serving
from tests.unit.sourcing.accounts import Account, Deposit, Withdraw, account_type
from tests.unit.sourcing.customers import Register, Rename, customer_type
from tools.pages import REPOSITORY

from headrace.app import RunOptions, import_app
from headrace.app.verify import verified
from headrace.client import EARLIEST, LATEST, Connection, RawFetcher
from headrace.personal import forget, key_place, open_keys
from headrace.sourcing import clear_records, entity_group
from headrace.sourcing.records import CHECKPOINT_KEY
from headrace.sourcing.restore import restore
from headrace.sourcing.topics import read_records

pytestmark = pytest.mark.kafka

PROJECTED = Path(__file__).with_name("projected_bank.py")
ORDERS = REPOSITORY / "examples" / "11_order_timeout" / "app.py"
DEADLINE_S = 180


def wait_until(condition, what):
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return found


@pytest.fixture
def app():
    return f"k{uuid.uuid4().hex[:10]}"


def records(connection, topic):
    with RawFetcher(connection) as fetcher:
        starts, ends = fetcher.offsets(topic, EARLIEST), fetcher.offsets(topic, LATEST)
        return [
            each
            for partition, end in ends.items()
            for each in read_records(fetcher, topic, partition, starts[partition], end)
        ]


def test_each_command_is_carried_out_once_though_its_owner_is_killed(kafka_log, app, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_TEST_APP", app)
    loaded = import_app(PROJECTED)
    loaded.entities.connect(kafka_log)

    def start():
        data = ("--data", str(tmp_path))
        return ServerProcess(
            kafka_log.bootstrap_servers, PROJECTED, *data, environment={"HEADRACE_TEST_APP": app}
        )

    servers = [start(), start()]
    with contextlib.ExitStack() as ending, ThreadPoolExecutor(8) as pool:
        ending.callback(loaded.entities.close)
        for each in servers:
            each.wait_ready()

        def deposit(number):
            account = loaded.entities.account(f"a-{number % 5}")
            return account.send_and_wait(Deposit(1), command_id=f"c-{number}", timeout_s=DEADLINE_S)

        sent = [pool.submit(deposit, number % 150) for number in range(180)]  # thirty are sent twice
        sent[60].result()
        servers[0].kill()
        servers[0] = start()
        assert all(each.result().accepted for each in sent)
        for number in range(5):
            assert loaded.entities.account(f"a-{number}").state().state == Account(balance=30, changes=30)
        options = RunOptions(data=tmp_path, bootstrap=kafka_log.bootstrap_servers)

        def balances():
            return [
                (each.rows, each.is_equal, each.failure) for each in verified(loaded, options, "balances")
            ]

        wait_until(lambda: balances() == [(5, True, None)], "the projection does not hold")
        refused = loaded.entities.account("a-0").send_and_wait(Withdraw(31), timeout_s=DEADLINE_S)
        assert (refused.outcome, refused.rule) == ("rejected", "insufficient-funds")
        assert [each.stop() for each in servers] == [0, 0]


def test_the_next_owner_begins_from_snapshots(kafka_log, app):
    bootstrap = kafka_log.bootstrap_servers
    kinds = {"account": account_type(partitions=1, snapshot_every=10)}
    entities = entities_at(bootstrap, kinds, app)
    with serving(bootstrap, kinds, app):
        for _ in range(25):
            assert entities.account("a").send_and_wait(Deposit(1), timeout_s=DEADLINE_S).accepted
    kept = records(kafka_log, f"{app}.account.snapshots")
    assert {each.key for each in kept} == {b"a", CHECKPOINT_KEY}
    taken_over = restore(kafka_log, app, kinds["account"], 0)
    assert taken_over.entities["a"].version == 25 and taken_over.events_since_checkpoint == 0
    with serving(bootstrap, kinds, app):
        assert entities.account("a").send_and_wait(Deposit(1), timeout_s=DEADLINE_S).version == 26
    entities.close()


def test_an_order_that_is_not_paid_is_cancelled_and_a_killed_reaction_sends_nothing_twice(
    kafka_log, monkeypatch
):
    monkeypatch.setenv("TIME_TO_PAY_S", "1")
    orders = import_app(ORDERS)
    orders.entities.connect(kafka_log)
    place = orders.entity_types["order"].commands["Place"]
    server = ServerProcess(kafka_log.bootstrap_servers, ORDERS)
    server.wait_ready()
    names = [f"o-{number}" for number in range(6)]
    for number, name in enumerate(names):
        orders.entities.order(name).send_and_wait(place(5), timeout_s=DEADLINE_S)
        if number == 3:
            server.kill()
            server = ServerProcess(kafka_log.bootstrap_servers, ORDERS)
    shelf = orders.entities.stock("shelf")
    wait_until(lambda: len(shelf.history()) == 2 * len(names), "not all were cancelled")
    happened = sorted((each.type, each.data["order"]) for each in shelf.history())
    assert happened == sorted((kind, name) for kind in ("Reserved", "Released") for name in names)
    assert server.stop() == 0
    orders.entities.close()


def test_on_kafka_the_destroyed_key_is_what_forgets(kafka_log, app, tmp_path):
    """Kafka's segments are not rewritten: the records stay, as ciphertext that no key opens."""
    bootstrap, keys = kafka_log.bootstrap_servers, open_keys(key_place(tmp_path))
    kinds = {"customer": customer_type(partitions=2, snapshot_every=5)}
    entities = entities_at(bootstrap, kinds, app, find_keys=lambda: keys)
    described = [kinds["customer"].describe()]

    def clear(subject):
        return clear_records(
            Connection(bootstrap_servers=bootstrap), app, described, entity_group(app), subject
        )

    with serving(bootstrap, kinds, app, find_keys=lambda: keys):
        for customer, name in (("c-1", "Hildegard"), ("c-2", "Ludwig")):
            registered = Register(name, "DE", 194311)
            assert entities.customer(customer).send_and_wait(registered, timeout_s=DEADLINE_S).accepted
        assert entities.customer("c-1").send_and_wait(Rename("Brunhild"), timeout_s=DEADLINE_S).accepted
        sender = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
        headers = {"headrace.command.name": b"Rename", "headrace.command.id": b"plain"}
        sender.produce(f"{app}.customer.commands", b'{"name": "Kriemhild"}', "c-1", headers=headers)
        assert sender.flush(30) == 0
        assert entities.customer("c-1").send_and_wait(Rename("Gudrun"), timeout_s=DEADLINE_S).accepted
    receipt = json.loads(forget(keys, "c-1", at_ms=1, clear=clear).read_bytes())
    assert receipt["left"] == []
    assert "key destroyed: what was sealed with them cannot be read any more" in receipt["steps"][0]
    assert any("in the clear" in each and each.endswith("deleted") for each in receipt["steps"]), receipt
    assert receipt["steps"][-1].startswith(f"no segment of the log at {bootstrap} was rewritten"), receipt
    topics = [f"{app}.customer.{kind}" for kind in ("commands", "events", "answers", "snapshots")]
    kept = [each.value or b"" for topic in topics for each in records(kafka_log, topic)]
    assert any(b"DE" in each for each in kept)
    names = (b"Hildegard", b"Brunhild", b"Kriemhild", b"Gudrun", b"194311")
    assert [each for each in kept for name in names if name in each] == []
    with serving(bootstrap, kinds, app, find_keys=lambda: keys):
        assert entities.customer("c-1").state().state.names == (None, None, None)
        assert entities.customer("c-2").state().state.names == ("Ludwig",)
        assert entities.customer("c-1").send_and_wait(Rename("Somebody"), timeout_s=DEADLINE_S).accepted
        assert entities.customer("c-1").state().state.names[-1] == "Somebody"
    entities.close()
    keys.close()
