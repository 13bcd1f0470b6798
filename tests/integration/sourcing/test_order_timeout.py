"""examples/11_order_timeout: an order without a payment is cancelled, also when nothing else happens."""

import random
import time

import pytest
from tests.integration.sourcing.serving import ServerProcess, serving
from tools.pages import REPOSITORY

from headrace.app import import_app
from headrace.client import Connection, GroupOffsets
from headrace.sourcing import reaction_group
from headrace.testing.broker import BrokerProcess

FILE = REPOSITORY / "examples" / "11_order_timeout" / "app.py"
PATIENCE_S = 240
CAMPAIGN_ORDERS, CAMPAIGN_KILLS = 80, 8


@pytest.fixture
def orders(monkeypatch):
    """The example, whose hour is a second."""
    monkeypatch.setenv("TIME_TO_PAY_S", "1")
    app = import_app(FILE)
    yield app
    app.entities.close()


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path) as started:
        yield started


def types(app):
    return {name: each for kind in app.entity_types.values() for name, each in kind.commands.items()}


def wait_status(app, entity, status):
    deadline = time.monotonic() + PATIENCE_S
    while (found := app.entities.order(entity).state().state.status) != status:
        assert time.monotonic() < deadline, f"{entity} is {found}, not {status}"
        time.sleep(0.1)


def wait_reserved(app, wanted):
    deadline = time.monotonic() + PATIENCE_S
    while (found := set(app.entities.stock("shelf").state().state.reserved)) != wanted:
        assert time.monotonic() < deadline, f"{found}, not {wanted}"
        time.sleep(0.1)


def test_an_order_is_cancelled_unless_it_is_paid_in_time(broker, orders):
    orders.entities.connect(broker.bootstrap)
    command = types(orders)
    with serving(broker.bootstrap, orders.entity_types, orders.name, reactions=orders.reactions.values()):
        for entity in ("o-1", "o-2"):
            assert orders.entities.order(entity).send_and_wait(command["Place"](5)).accepted
        assert orders.entities.order("o-1").send_and_wait(command["Pay"](5)).accepted
        wait_status(orders, "o-2", "cancelled")
        wait_reserved(orders, {"o-1"})
        assert orders.entities.order("o-1").state().state.status == "paid"
    cancelled = orders.entities.order("o-2").history()[-1]
    assert (cancelled.by, cancelled.command_name) == ("reaction watch_payment", "CancelIfUnpaid")
    assert cancelled.cause.startswith("orders.order.events:")
    assert cancelled.correlation == orders.entities.order("o-2").history()[0].command


def test_each_command_of_a_reaction_is_sent_once_though_its_process_is_killed(broker, orders):
    orders.entities.connect(broker.bootstrap)
    place = types(orders)["Place"]
    server = ServerProcess(broker.bootstrap, FILE)
    server.wait_ready()
    for number in range(10):
        orders.entities.order(f"o-{number}").send_and_wait(place(5))
        if number == 5:
            server.kill()
            server = ServerProcess(broker.bootstrap, FILE)
    for number in range(10):
        wait_status(orders, f"o-{number}", "cancelled")
    wait_reserved(orders, set())
    assert server.stop() == 0
    history = orders.entities.stock("shelf").history()
    happened = [(each.type, each.data["order"]) for each in history]
    assert sorted(happened) == sorted(
        (kind, f"o-{number}") for kind in ("Reserved", "Released") for number in range(10)
    )


@pytest.mark.slow
def test_each_command_of_a_reaction_is_sent_once_through_many_kills_of_its_processes(broker, orders):
    """Two processes share the work; every few orders one of them is killed, at a moment by chance."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    orders.entities.connect(broker.bootstrap)
    place = types(orders)["Place"]
    servers = [ServerProcess(broker.bootstrap, FILE) for _ in range(2)]
    for each in servers:
        each.wait_ready()
    names = [f"o-{number}" for number in range(CAMPAIGN_ORDERS)]
    for number, name in enumerate(names):
        assert orders.entities.order(name).send_and_wait(place(5), timeout_s=PATIENCE_S).accepted
        if number % (CAMPAIGN_ORDERS // CAMPAIGN_KILLS) == 3:
            time.sleep(chance.uniform(0, 0.5))  # the reaction is somewhere in between
            doomed = chance.randrange(2)
            servers[doomed].kill()
            servers[doomed] = ServerProcess(broker.bootstrap, FILE)
    for name in names:
        wait_status(orders, name, "cancelled")
    wait_reserved(orders, set())
    assert [each.stop() for each in servers] == [0, 0]
    happened = [(each.type, each.data["order"]) for each in orders.entities.stock("shelf").history()]
    assert sorted(happened) == sorted((kind, name) for kind in ("Reserved", "Released") for name in names)
    for name in names:
        assert [each.type for each in orders.entities.order(name).history()] == ["Placed", "Cancelled"]


def test_a_new_reaction_begins_with_what_happens_from_then_on(broker, orders):
    orders.entities.connect(broker.bootstrap)
    place = types(orders)["Place"]
    with serving(broker.bootstrap, orders.entity_types, orders.name):
        orders.entities.order("old").send_and_wait(place(5))
    with serving(broker.bootstrap, orders.entity_types, orders.name, reactions=orders.reactions.values()):
        orders.entities.order("new").send_and_wait(place(5))
        wait_status(orders, "new", "cancelled")
    assert orders.entities.order("old").state().state.status == "placed"
    connection = Connection(bootstrap_servers=broker.bootstrap)
    with GroupOffsets(connection, reaction_group("orders", "watch_payment")) as offsets:
        assert offsets.fetch("orders.order.events", [0, 1, 2, 3])
