"""The Entities panel: types, timelines, the command behind each event, the state at each step."""

import os
import sys
from urllib.parse import quote

import pytest
from playwright.sync_api import expect
from tests.browser.consoles import Console
from tests.integration.sourcing.serving import entities_at, serving
from tests.unit.sourcing.accounts import Deposit, Move
from tests.unit.sourcing.customers import Register, Rename

from headrace.app import import_app
from headrace.app.options import RunOptions
from headrace.app.run.serving import _description
from headrace.app.status.description import write_description
from headrace.client import Connection
from headrace.personal import key_place, open_keys

APPLICATION = """
from tests.unit.sourcing.accounts import Account, decide, evolve
from tests.unit.sourcing.customers import customer_type

from headrace import App

app = App("till")
app.entity("account", decide=decide, evolve=evolve, initial=Account(), partitions=2)
customer = customer_type()
app.entity_types[customer.name] = customer
"""


@pytest.fixture(scope="module")
def till(broker, tmp_path_factory):
    """A console of an application that serves accounts, and customers with personal fields."""
    folder = tmp_path_factory.mktemp("till")
    file = folder / "till.py"
    file.write_text(APPLICATION)
    app, log = import_app(file), Connection(bootstrap_servers=broker.bootstrap)
    write_description(folder, _description(app, RunOptions(data=folder, file=file), log))
    keys = open_keys(key_place(folder))
    kinds = app.entity_types
    entities = entities_at(broker.bootstrap, kinds, app.name, find_keys=lambda: keys)
    with pytest.MonkeyPatch.context() as environment:
        # The console asks the application's code in a process of its own, which finds the same modules.
        environment.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        with (
            serving(broker.bootstrap, kinds, app.name, find_keys=lambda: keys),
            Console(bootstrap=broker.bootstrap, data=folder) as console,
        ):
            account = entities.account("a-1")
            account.send_and_wait(Deposit(70), by="ann", cause="letter 12", correlation="case 7")
            account.send_and_wait(Move((5, -25)), by="bob")
            entities.account("a-2").send_and_wait(Deposit(1), by="ann")
            entities.account("b/1").send_and_wait(Deposit(1), by="ann")
            entities.customer("c-1").send_and_wait(Register("Grace Hopper", "US", 1906), by="desk")
            entities.customer("c-1").send_and_wait(Rename("Amazing Grace"), by="desk")
            yield console
    entities.close()
    keys.close()


def test_an_entity_is_found_from_the_navigation_and_its_timeline_shows_every_step(till, open_page):
    page = open_page(url=till.url)
    page.get_by_role("link", name="Entities").click()
    row = page.get_by_role("region", name="Entity types").get_by_role("row", name="account")
    expect(row).to_contain_text("Deposit")
    row.get_by_role("link").click()
    listed = page.get_by_role("region", name="Entities of type account").locator("tbody tr")
    expect(listed).to_have_count(3)
    page.get_by_label("Id begins with").fill("a-")
    expect(listed).to_have_count(2)
    listed.filter(has_text="a-1").get_by_role("link").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("a-1")
    events = page.get_by_role("region", name="Timeline of a-1").locator("tbody tr")
    expect(events).to_have_count(3)
    expect(events.nth(0)).to_contain_text("Withdrawn")  # the newest first
    expect(events.nth(0)).to_contain_text("Move")
    expect(events.nth(0)).to_contain_text("bob")
    detail = page.get_by_label("Selected event")
    expect(detail).to_contain_text("balance")
    expect(detail).to_contain_text("75 → 50")
    events.nth(2).click()
    expect(detail).to_contain_text("Version 1: Deposited")
    expect(detail).to_contain_text("letter 12")
    expect(detail).to_contain_text("case 7")
    expect(detail).to_contain_text("0 → 70")
    detail.get_by_role("link").click()  # the record behind the event
    expect(page.get_by_role("heading", level=1)).to_have_text("till.account.events")


def test_personal_fields_stay_sealed(till, open_page):
    page = open_page("entities/customer/c-1?version=1", url=till.url)
    detail = page.get_by_label("Selected event")
    expect(detail).to_contain_text("Version 1: Registered")
    expect(detail).to_contain_text("State after it")
    expect(detail).to_contain_text("US")
    shown = page.content()
    assert "Grace" not in shown and "1906" not in shown


def test_ids_may_hold_anything_and_one_that_is_not_there_is_told_of(till, open_page):
    page = open_page(f"entities/account/{quote('b/1', safe='')}", url=till.url)
    expect(page.get_by_role("region", name="Timeline of b/1").locator("tbody tr")).to_have_count(1)
    page = open_page("entities/account/nobody", url=till.url)
    expect(page.get_by_text("Nothing has happened")).to_be_visible()
