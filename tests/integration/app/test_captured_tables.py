"""Tables of a SQLite database in an application: captured, joined, and never shown half of a transaction."""

import contextlib
import random
import sqlite3
from contextlib import closing

import pytest
from app_runs import kept_running, new_topic, wait_until
from app_runs import rows as rows_of

from headrace import App
from headrace.derived import table, verify_follow
from headrace.errors import ConfigError, RequestError
from headrace.views import open_store

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]

ACCOUNTS, EACH = 5, 100


def bank(path):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(
            "CREATE TABLE current (id INTEGER PRIMARY KEY, owner TEXT, balance INTEGER NOT NULL)"
        )
        database.execute("CREATE TABLE savings (id INTEGER PRIMARY KEY, saved INT NOT NULL)")
        for number in range(ACCOUNTS):
            database.execute("INSERT INTO current VALUES (?, ?, ?)", (number, f"owner {number}", EACH))
            database.execute("INSERT INTO savings VALUES (?, ?)", (number, EACH))


def transfer(database, chance):
    amount, number = chance.randrange(-40, 40), chance.randrange(ACCOUNTS)
    with database:
        database.execute("UPDATE current SET balance = balance - ? WHERE id = ?", (amount, number))
        database.execute("UPDATE savings SET saved = saved + ? WHERE id = ?", (amount, number))


def wealth_of(path, name, store):
    app = App(f"app-{name}", store=store)
    url = f"sqlite:///{path}"
    current = app.table("current", source=app.capture(url, table="current", name=name))
    savings = app.table("savings", source=app.capture(url, table="savings", name=name))

    app.follow(
        current, into=table(f"sqlite:///{path.parent / 'derived.db'}", "current"), name=f"{name}-derived"
    )

    @app.view(key="id")
    def wealth():
        return current.join(savings, on="id", how="full").with_columns(total="balance + saved")

    return app


def shown(store):
    """The totals of the view after each of its commits."""
    rows, found = {}, {}
    with contextlib.closing(open_store(store)) as opened:
        for change in opened.changes("wealth", 0):
            key = tuple(change.key.values())
            rows.pop(key, None)
            if change.after is not None:
                rows[key] = change.after
            found[change.batch_id] = dict(rows)
    return list(found.values())


def derived(folder):
    """The balances in the table that follows the captured one."""
    with (
        closing(sqlite3.connect(folder / "derived.db")) as database,
        contextlib.suppress(sqlite3.OperationalError),
    ):
        return {(number,): balance for number, balance in database.execute("SELECT id, balance FROM current")}
    return {}


def test_a_view_follows_the_tables_of_a_database_in_whole_transactions(our_log, spark, tmp_path):
    path, store, name = tmp_path / "bank.db", f"sqlite:///{tmp_path}/views.db", new_topic()
    bank(path)
    chance, app = random.Random(3), wealth_of(path, name, store)
    with kept_running(app, our_log, tmp_path / "data") as started, closing(sqlite3.connect(path)) as database:
        wait_until(started, lambda: shown(store) and len(shown(store)[-1]) == ACCOUNTS)
        for _ in range(12):
            transfer(database, chance)
        wanted = {
            (number,): balance for number, balance in database.execute("SELECT id, balance FROM current")
        }
        wait_until(started, lambda: {key: row["balance"] for key, row in shown(store)[-1].items()} == wanted)
        wait_until(started, lambda: derived(tmp_path) == wanted)
    assert verify_follow(app.followers[f"{name}-derived"], our_log).is_equal
    for rows in shown(store):
        whole = [row for row in rows.values() if row["balance"] is not None and row["saved"] is not None]
        assert {row["total"] for row in whole} <= {2 * EACH}


def test_a_column_that_is_renamed_stops_the_query_and_the_next_start_reads_it(our_log, spark, tmp_path):
    path, store, name = tmp_path / "bank.db", f"sqlite:///{tmp_path}/views.db", new_topic()
    bank(path)
    with kept_running(wealth_of(path, name, store), our_log, tmp_path / "data") as started:
        wait_until(started, lambda: shown(store) and len(shown(store)[-1]) == ACCOUNTS)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("ALTER TABLE current RENAME COLUMN owner TO holder")
            database.execute("UPDATE current SET holder = 'Ann' WHERE id = 0")
        with pytest.raises(RequestError, match=r"main\.current has no column owner any longer.*--rebuild"):
            wait_until(started, lambda: False)
    assert all(row["owner"] is not None for row in shown(store)[-1].values())
    again = wealth_of(path, name, store)
    with kept_running(again, our_log, tmp_path / "data", rebuild=True) as started:
        wait_until(
            started, lambda: {row.get("holder") for row in rows_of(store, "wealth")} >= {"Ann", "owner 1"}
        )


def test_what_cannot_be_a_table_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE log (line TEXT)")
    app = App("shop")
    with pytest.raises(ConfigError, match="no table customers"):
        app.capture(f"sqlite:///{path}", table="customers")
    with pytest.raises(ConfigError, match="no primary key"):
        app.table("log", source=app.capture(f"sqlite:///{path}", table="log"))
    with pytest.raises(ConfigError, match="a password does not belong in a URL"):
        app.capture("postgresql://me:secret@localhost/shop", table="log")
    with pytest.raises(ConfigError, match="needs key= and schema="):
        app.table("plain")
