"""A forgotten subject is in no file of log and keys, and comes back by no way; others are untouched."""

import json
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.sourcing.serving import entities_at, serving
from tests.unit.sourcing.customers import Place, Register, Rename, customer_type, order_type

from headrace.app.options import RunOptions
from headrace.app.run.serving import _description
from headrace.app.status.description import write_description
from headrace.cli.main import run
from headrace.client import Connection
from headrace.personal import key_place, open_keys
from headrace.sourcing import entity_group
from headrace.testing.broker import BrokerProcess
from headrace.testing.console import ConsoleProcess

SHOP = Path(__file__).with_name("shop.py")
KINDS = {"customer": customer_type(partitions=2, snapshot_every=5), "order": order_type(partitions=2)}
NAMES = (b"Hildegard", b"Brunhild", b"Hidden Lane", b"194311")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("shop")


@pytest.fixture(scope="module")
def broker(folder):
    with BrokerProcess(folder / "log") as process:
        yield process


@pytest.fixture
def keys(folder, monkeypatch):
    monkeypatch.setenv("HEADRACE_KEYS", str(folder / "personal" / "keys.db"))
    opened = open_keys(key_place(folder))
    yield opened
    opened.close()


def files_with(folder, *texts):
    """The files below a folder that have any of these bytes; receipts name the subject on purpose."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != "receipts":
            data = path.read_bytes()
            found += [(str(path.relative_to(folder)), text) for text in texts if text in data]
    return found


def forget(broker, *arguments):
    return run(["forget", *arguments, "--file", str(SHOP), "-b", broker.bootstrap, "--yes"])


def customers(entities):
    """Two customers with names, addresses and renamings, enough for snapshots."""
    for name, customer in (("Hildegard", "c-1"), ("Ludwig", "c-2")):
        assert (
            entities.customer(customer)
            .send_and_wait(Register(name, "DE", 194311 if name[0] == "H" else 7))
            .accepted
        )
        street = {"street": f"{'Hidden' if customer == 'c-1' else 'Open'} Lane 1"}
        answer = entities.order(f"o-{customer}").send_and_wait(Place(customer, street))
        assert answer.events[0].data == {"customer": customer, "address": street}
    for each in range(6):
        assert entities.customer("c-1").send_and_wait(Rename(f"Brunhild {each}")).accepted
    rejected = entities.customer("c-1").send_and_wait(Register("Hildegard", "DE"))
    assert (rejected.rule, rejected.message) == ("registered", "Brunhild 5 is registered")


def test_no_file_has_a_personal_value_before_and_nobody_can_read_it_afterwards(folder, broker, keys):
    entities = entities_at(broker.bootstrap, KINDS, "shop", find_keys=lambda: keys)
    with serving(broker.bootstrap, KINDS, "shop", find_keys=lambda: keys):
        customers(entities)
        assert entities.customer("c-1").state().state.names[0] == "Hildegard"
        assert forget(broker, "c-1") == 0
        # The server still has the old state in memory, and must not write it again.
        assert entities.customer("c-1").send_and_wait(Rename("Somebody")).accepted
        names = entities.customer("c-1").state().state.names
        assert names == (None,) * 7 + ("Somebody",)
    assert files_with(folder, *NAMES) == []
    assert files_with(folder / "log", b"country") != []  # the scan does see the events
    with serving(broker.bootstrap, KINDS, "shop", find_keys=lambda: keys):  # from snapshots and events
        assert entities.customer("c-1").state(version=1).state.names == (None,)
        assert [each.data["name"] for each in entities.customer("c-1").history()][:2] == [None, None]
        assert entities.order("o-c-1").state().state.addresses == (None,)
        assert entities.customer("c-2").state().state.names == ("Ludwig",)
        assert entities.order("o-c-2").state().state.addresses == ({"street": "Open Lane 1"},)
        assert entities.customer("c-1").send_and_wait(Rename("Somebody else")).accepted
    entities.close()
    assert files_with(folder, *NAMES) == []


def test_the_receipt_holds_until_it_is_changed_or_the_key_comes_back(folder, broker, keys, capsys):
    entities = entities_at(broker.bootstrap, KINDS, "shop", find_keys=lambda: keys)
    with serving(broker.bootstrap, KINDS, "shop", find_keys=lambda: keys):
        assert entities.customer("c-3").send_and_wait(Register("Hildegard", "DE")).accepted
    entities.close()
    backup = keys.path.read_bytes()
    assert forget(broker, "c-3", "--json") == 0
    receipt = Path(json.loads(capsys.readouterr().out)["path"])
    check = ["forget", "--check", str(receipt), "--file", str(SHOP)]
    assert run(check) == 0
    keys.close()
    keys.path.write_bytes(backup)
    assert run(check) == 1 and "was a backup restored" in capsys.readouterr().out
    receipt.write_text(receipt.read_text().replace("c-3", "c-4"))
    assert run(check) == 1


def test_a_command_in_the_clear_is_rejected_and_deleted(folder, broker, keys, capsys):
    entities = entities_at(broker.bootstrap, KINDS, "shop", find_keys=lambda: keys)
    sender = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    with serving(broker.bootstrap, KINDS, "shop", find_keys=lambda: keys):
        assert entities.customer("c-5").send_and_wait(Register("Hildegard", "DE")).accepted
        headers = {"headrace.command.name": b"Rename", "headrace.command.id": b"plain"}
        sender.produce("shop.customer.commands", b'{"name": "Kriemhild"}', "c-5", headers=headers)
        assert sender.flush(30) == 0
        assert entities.customer("c-5").send_and_wait(Rename("Gudrun")).accepted
    entities.close()
    assert entity_group("shop") == "shop.entities"
    assert forget(broker, "c-5", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["left"] == [] and any("deleted" in each for each in found["steps"]), found
    assert "was rewritten" in found["steps"][-1] and "destroying the keys" in found["steps"][-1]


def test_commands_over_http_are_sealed_by_the_console(folder, broker, keys):
    from tests.integration.sourcing.shop import app

    connection = Connection(bootstrap_servers=broker.bootstrap)
    write_description(folder, _description(app, RunOptions(data=folder), connection))
    with (
        serving(broker.bootstrap, KINDS, "shop", find_keys=lambda: keys),
        ConsoleProcess(broker.bootstrap, data=folder) as console,
    ):
        body = json.dumps({"name": "Hildegard", "country": "DE"}).encode()
        request = urllib.request.Request(
            f"{console.url}/v1/entities/customer/c-6/commands/Register",
            body,
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
    assert answer["events"][0]["data"]["name"] == "Hildegard"
    assert files_with(folder, *NAMES) == []
