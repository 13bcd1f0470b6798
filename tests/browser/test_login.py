"""The login, where the console has users: a token, a role, and what the role hides."""

import json
import subprocess
import sys

import pytest
from playwright.sync_api import expect
from tests.browser.consoles import Console


def token_of(users, name: str, role: str) -> str:
    command = [sys.executable, "-m", "headrace", "console", "token", "add", name, "--role", role]
    made = subprocess.run([*command, "--users", str(users), "--json"], capture_output=True, check=True)
    return json.loads(made.stdout)["token"]


@pytest.fixture(scope="module")
def users(tmp_path_factory):
    return tmp_path_factory.mktemp("users") / "users.json"


@pytest.fixture(scope="module")
def tokens(users):
    made = {role: token_of(users, f"a-{role}", role) for role in ("reader", "admin")}
    return {**made, "leaver": token_of(users, "leaver", "reader")}


@pytest.fixture(scope="module")
def guarded(shop, users, tokens):
    with Console(bootstrap=shop.bootstrap, data=shop.data, flags=("--users", str(users))) as console:
        yield console


def test_a_wrong_token_is_refused_and_a_right_one_opens_what_was_asked_for(guarded, tokens, open_page):
    page = open_page("views", url=guarded.url, troubles_allowed=True)
    page.get_by_label("Token").fill("not-a-token")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("token is not valid")
    page.get_by_label("Token").fill(tokens["admin"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Views")
    expect(page.get_by_role("link", name="Audit", exact=True)).to_be_visible()
    assert tokens["admin"] not in page.evaluate("document.cookie + JSON.stringify(localStorage)")

    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Views")
    page.route("**/v1/logout", lambda asked: asked.abort())
    page.get_by_role("button", name="a-admin").click()
    expect(page.get_by_text("The console is not responding.")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("Views")  # still signed in, and told so
    page.unroute("**/v1/logout")
    page.get_by_role("button", name="a-admin").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_a_reader_sees_no_button_that_would_be_refused(guarded, tokens, open_page):
    page = open_page("topics", url=guarded.url, troubles_allowed=True)
    page.get_by_label("Token").fill(tokens["reader"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("grid", name="Topics")).to_be_visible()
    expect(page.get_by_role("button", name="Create a topic")).to_have_count(0)
    expect(page.get_by_role("link", name="Audit", exact=True)).to_have_count(0)
    page.goto(f"{guarded.url}/#/")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Overview")
    expect(page.get_by_role("form", name="Send a record")).to_have_count(0)


def test_a_page_whose_token_is_removed_asks_who_it_is(guarded, users, tokens, open_page):
    page = open_page("topics", url=guarded.url, troubles_allowed=True)
    page.get_by_label("Token").fill(tokens["leaver"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("grid", name="Topics")).to_be_visible()
    command = [sys.executable, "-m", "headrace", "console", "token", "remove", "leaver"]
    subprocess.run([*command, "--users", str(users)], capture_output=True, check=True)
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
