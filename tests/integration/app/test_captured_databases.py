"""Tables of PostgreSQL and MariaDB in an application: whole transactions only, and every type as a column."""

import contextlib
import os
import random
import signal
from collections.abc import Iterator

import pytest
from app_runs import kept_running, new_topic, wait_until
from tests.integration.capture.mysql import conftest as mysql
from tests.integration.capture.mysql import test_values as mysql_values
from tests.integration.capture.mysql.databases import Database as MysqlDatabase
from tests.integration.capture.postgres import conftest as postgres
from tests.integration.capture.postgres import test_source as postgres_values
from tests.integration.capture.postgres.databases import Database as PostgresDatabase
from tests.integration.capture.reading import folded, read_topic

from headrace import App
from headrace.views import open_store

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]

Database = PostgresDatabase | MysqlDatabase
ACCOUNTS, EACH = 4, 100
# Two that need more than a plain server, and an array with more dimensions than its type says.
LEFT_OUT = ("hs", "xm", "ma2")
KINDS = [pytest.param("postgres", marks=pytest.mark.slow), pytest.param("mariadb", marks=pytest.mark.slow)]


@contextlib.contextmanager
def opened(kind: str) -> Iterator[Database]:
    if kind == "postgres":
        with postgres.started() as server, PostgresDatabase(server, "bank") as database:
            yield database
    else:
        with mysql.started() as server, MysqlDatabase(server, "bank") as database:
            yield database


def shown(store: str, view: str) -> list[dict]:
    """The rows of the view after each of its commits, by key."""
    rows, found = {}, {}
    with contextlib.closing(open_store(store)) as view_store:
        for change in view_store.changes(view, 0):
            key = tuple(change.key.values())
            rows.pop(key, None)
            if change.after is not None:
                rows[key] = change.after
            found[change.batch_id] = dict(rows)
    return list(found.values())


def transfer(database: Database, chance: random.Random) -> None:
    """From an account of one table to one of the other, or within one; sometimes not at all."""
    amount, end = chance.randrange(1, 40), chance.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK"))
    one, other = chance.sample(["current", "savings"], 2)
    number = chance.randrange(ACCOUNTS)
    database.run("BEGIN", f"UPDATE {one} SET balance = balance - {amount} WHERE id = {number}",
                 f"UPDATE {other} SET balance = balance + {amount} WHERE id = {number}", end)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(900)
def test_a_view_of_two_tables_never_shows_half_of_a_transfer(kind, our_log, spark, tmp_path):
    name, store, chance = new_topic(), f"sqlite:///{tmp_path}/views.db", random.Random(kind)
    with opened(kind) as database:
        for table in ("current", "savings"):
            database.run(f"CREATE TABLE {table} (id int PRIMARY KEY, balance int NOT NULL)")
            database.run(*[f"INSERT INTO {table} VALUES ({each}, {EACH})" for each in range(ACCOUNTS)])
        app, url = App(f"app-{name}", store=store), database.server.url("bank")
        prefix = "public." if kind == "postgres" else ""
        current = app.table("current", source=app.capture(url, table=f"{prefix}current", name=name))
        savings = app.table("savings", source=app.capture(url, table=f"{prefix}savings", name=name))

        @app.view(key="id")
        def wealth():
            renamed = savings.with_columns(saved="balance").select("id", "saved")
            return current.join(renamed, on="id", how="full").with_columns(total="balance + saved")

        with kept_running(app, our_log, tmp_path / "data") as started:
            wait_until(
                started, lambda: shown(store, "wealth") and len(shown(store, "wealth")[-1]) == ACCOUNTS
            )
            assert started.captures is not None
            for kills in range(3):
                seen = len(shown(store, "wealth"))

                def has_moved(seen=seen):
                    transfer(database, chance)
                    return len(shown(store, "wealth")) >= seen + 2

                wait_until(started, has_moved)  # which also restarts a capture that was killed
                if kills < 2:
                    os.kill(started.captures.pid, signal.SIGKILL)
            found = database.run("SELECT id, balance FROM current")
            wanted = {int(each[0] or 0): int(each[1] or 0) for each in found}
            wait_until(
                started,
                lambda: {key[0]: row["balance"] for key, row in shown(store, "wealth")[-1].items()} == wanted,
            )
    states = shown(store, "wealth")
    for rows in states:
        whole = [row for row in rows.values() if row["balance"] is not None and row["saved"] is not None]
        assert {row["total"] for row in whole} <= {2 * EACH}
    assert len(states) > 6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(900)
def test_every_type_is_a_column(kind, our_log, spark, tmp_path):
    name, store = new_topic(), f"sqlite:///{tmp_path}/views.db"
    with opened(kind) as database:
        if kind == "postgres":
            database.run("CREATE TYPE mood AS ENUM ('sad', 'it''s \"odd\"')",
                         "CREATE DOMAIN posint AS int CHECK (value > 0)",
                         "CREATE TYPE pair AS (a int, b text)")  # fmt: skip
            zoo = {each: said for each, said in postgres_values.ZOO.items() if each not in LEFT_OUT}
            zoo |= {"ts3": ("timestamp(3)", "'2026-01-02 03:04:05.678'"), "da": ("date", "'2026-01-02'"),
                    "tz": ("timestamptz", "'2026-01-02 03:04:05.5+01'")}  # fmt: skip
        else:
            zoo = {each: said[:2] for each, said in (mysql_values.ZOO | mysql_values.OF_MARIADB).items()}
        columns = ", ".join(f"{each} {said[0]}" for each, said in zoo.items())
        database.run(
            f"CREATE TABLE zoo (id int PRIMARY KEY, {columns})",
            f"INSERT INTO zoo VALUES (1, {', '.join(said[1] for said in zoo.values())})",
        )
        app = App(f"app-{name}", store=store)
        table = "public.zoo" if kind == "postgres" else "zoo"
        captured = app.capture(database.server.url("bank"), table=table, name=name)
        animals = app.table("zoo", source=captured)

        @app.view(key="id")
        def shown_zoo():
            return animals.where("id > 0")

        with kept_running(app, our_log, tmp_path / "data") as started:
            wait_until(started, lambda: shown(store, "shown_zoo"))
        (row,) = shown(store, "shown_zoo")[-1].values()
    (told,) = folded(read_topic(our_log.bootstrap_servers, captured.topic)).values()
    assert set(row) == set(told) == {"id", *zoo}
    types = {each.name: each.spark_type for each in captured.schema.columns}
    lost = [each for each in zoo if (row[each] is None) != (told[each] is None)]
    assert not lost, {each: (types[each], told[each]) for each in lost}
    plain = [each for each in zoo if types[each] in ("string", "int", "bigint", "smallint", "boolean")]
    assert {each: row[each] for each in plain} == {each: told[each] for each in plain}
