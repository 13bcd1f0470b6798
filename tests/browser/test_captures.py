"""The Captures panel: a real capture of a SQLite file and a real follower, as they move."""

import contextlib
import sqlite3
import threading

import pytest
from playwright.sync_api import expect

from headrace.capture import CaptureHost, CaptureSpec, Catalog, absolute_url
from headrace.client import Connection
from headrace.derived import Follow, FollowCatalog, FollowHost, search

ROWS = 300


@contextlib.contextmanager
def hosted(*hosts):
    threads = [threading.Thread(target=each.run, daemon=True) for each in hosts]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        for each in hosts:
            each.stop()
        for each in threads:
            each.join(60)


@pytest.fixture
def captured(shop, tmp_path):
    """A database that is captured, and a search index that follows it; the database, and the catalog."""
    connection = Connection(bootstrap_servers=shop.bootstrap)
    path = tmp_path / "pantry.db"
    with (
        contextlib.closing(sqlite3.connect(path, check_same_thread=False)) as database,
        contextlib.closing(Catalog(connection)) as captures,
        contextlib.closing(FollowCatalog(connection)) as follows,
    ):
        with database:
            database.execute("CREATE TABLE jars (id INTEGER PRIMARY KEY, label TEXT)")
            database.executemany("INSERT INTO jars VALUES (?, ?)", [(n, f"jar {n}") for n in range(ROWS)])
        captures.add(CaptureSpec(name="pantry", url=absolute_url(f"sqlite:///{path}"), tables=("jars",)))
        into = search(f"sqlite:///{tmp_path}/index.db", "jars", fields=["label"])
        follows.add(Follow(name="jars-index", topic="pantry.main.jars", into=into, format="debezium"))
        with hosted(CaptureHost(connection, ["pantry"]), FollowHost(connection, ["jars-index"])):
            yield database, captures
        captures.remove("pantry")
        follows.remove("jars-index")


def test_a_capture_and_its_follower_are_shown_with_their_progress_and_what_stops_them(captured, open_page):
    database, catalog = captured
    page = open_page("captures")
    capture = page.get_by_role("region", name="Captures").get_by_role("row", name="pantry")
    expect(capture).to_contain_text("streaming")
    expect(capture).to_contain_text("100%")
    expect(capture).to_contain_text("pantry.db")
    follower = page.get_by_role("region", name="Followers").get_by_role("row", name="jars-index")
    expect(follower).to_contain_text("following")
    expect(follower).to_contain_text("index.db jars")

    capture.get_by_role("link", name="pantry").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("pantry")
    table = page.get_by_role("region", name="Tables").locator("tbody tr")
    expect(table).to_contain_text("main.jars")
    expect(table).to_contain_text(f"{ROWS}")
    with database:
        database.execute("UPDATE jars SET label = 'honey' WHERE id < 7")
    expect(page.get_by_text("7 changes")).to_be_visible()  # by itself
    with database:
        database.execute("ALTER TABLE jars RENAME TO cans")
    problem = page.get_by_role("alert").filter(has_text="jars")
    expect(problem).to_be_visible()
    expect(page.get_by_text("reconnecting", exact=True)).to_be_visible()
    with database:
        database.execute("ALTER TABLE cans RENAME TO jars")
    expect(problem).to_have_count(0)
    catalog.refresh()
    catalog.pause("pantry")
    expect(page.get_by_text("paused", exact=True)).to_be_visible()

    page.get_by_role("main").get_by_role("link", name="Captures").click()
    page.get_by_role("link", name="jars-index").click()
    positions = page.get_by_role("region", name="Positions").locator("tbody tr")
    expect(positions).to_have_count(4)
    expect(page.get_by_text("300 rows").or_(page.get_by_text("307 rows"))).to_be_visible()
