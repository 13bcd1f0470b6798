"""A captured table that is changed while it is followed: every derived system ends with what the table has.

One test for each cell of the matrix in docs/guides/capture.md whose consumer is a derived system.
"""

import contextlib
import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.contract.derived_targets import TARGETS
from tests.integration.capture.conftest import running
from tests.integration.capture.mysql.databases import Database as MysqlDatabase
from tests.integration.capture.postgres.databases import Database as PostgresDatabase
from tests.integration.capture.reading import folded, read_topic
from tests.integration.derived.conftest import following, has_all, wait_until

from headrace.capture import CaptureRun, table_topic, transaction_topic
from headrace.capture.sqlite import SqliteSource
from headrace.client import Connection
from headrace.derived import Follow, search, verify_follow
from headrace.derived.changes import canonical

_numbers = itertools.count(1)
COLUMNS = "id int PRIMARY KEY, name varchar(40), age int, city varchar(40)"
ROWS = [(1, "Ann", 30, "Oslo"), (2, "Ben", 40, "Bern"), (3, "Cleo", 50, "Rome")]
TOUCHED = "UPDATE customers SET id = 4 WHERE id = 1"

CHANGES = {
    "added": [
        "ALTER TABLE customers ADD COLUMN note varchar(40)", "UPDATE customers SET note = 'x' WHERE id = 2",
    ],
    "added with values": ["ALTER TABLE customers ADD COLUMN vip int DEFAULT 7"],
    "renamed": ["ALTER TABLE customers RENAME COLUMN city TO town"],
    "swapped": [
        "ALTER TABLE customers RENAME COLUMN name TO was", "ALTER TABLE customers RENAME COLUMN city TO name",
        "ALTER TABLE customers RENAME COLUMN was TO city",
    ],
    "dropped": ["ALTER TABLE customers DROP COLUMN age"],
}  # fmt: skip
RETYPED = {
    "sqlite": [
        "CREATE TABLE other (id int PRIMARY KEY, name varchar(40), age varchar(9), city varchar(40))",
        "INSERT INTO other SELECT id, name, 'about ' || age, city FROM customers",
        "DROP TABLE customers", "ALTER TABLE other RENAME TO customers",
    ],
    "postgres": ["ALTER TABLE customers ALTER age TYPE varchar(9) USING 'about ' || age"],
    "mariadb": [
        "ALTER TABLE customers MODIFY age varchar(9)", "UPDATE customers SET age = CONCAT('about ', age)",
    ],
}  # fmt: skip
KINDS = ("sqlite", "postgres", "mariadb")
EMBEDDED = ("sqlite table", "sqlite search", "redis", "redis hashes", "delta")


def drop_triggers(database: sqlite3.Connection) -> None:
    """As the guide says to do it: a capture that runs would soon create new ones."""
    triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'customers'"
    for (name,) in database.execute(triggers).fetchall():
        database.execute(f'DROP TRIGGER "{name}"')


class SqliteDatabase:
    """A file, with what the databases of other tests have."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """In one transaction; a column is dropped once no trigger names it."""
        with closing(sqlite3.connect(self.path)) as database:
            database.execute("BEGIN IMMEDIATE")
            if any("DROP COLUMN" in each for each in statements):
                drop_triggers(database)
            rows = [database.execute(each).fetchall() for each in statements]
            database.commit()
            return rows[-1]

    def source(self, **options: Any) -> SqliteSource:
        return SqliteSource(self.path, options.get("tables", ["customers"]), name="test")


AnyDatabase = SqliteDatabase | PostgresDatabase | MysqlDatabase


@contextlib.contextmanager
def opened(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[AnyDatabase]:
    name = f"changing_{next(_numbers)}"
    if kind == "sqlite":
        yield SqliteDatabase(folder / "shop.db")
    elif kind == "postgres":
        with PostgresDatabase(request.getfixturevalue("postgres_process"), name) as database:
            yield database
    else:
        with MysqlDatabase(request.getfixturevalue("mariadb"), name) as database:
            yield database


def in_database(database: AnyDatabase, kind: str) -> dict[int, bytes]:
    """The rows of the table, by id."""
    if kind == "postgres":
        found = [orjson.loads(each) for (each,) in database.run("SELECT to_json(t) FROM customers t")]
    else:
        about = "SELECT name, type FROM pragma_table_info('customers')"
        if kind == "mariadb":
            about = ("SELECT column_name, data_type FROM information_schema.columns WHERE table_name = "
                     "'customers' AND table_schema = database() ORDER BY ordinal_position")  # fmt: skip
        columns = database.run(about)
        values = database.run(f"SELECT {', '.join(each for each, _ in columns)} FROM customers")
        found = [
            {name: int(each) if each is not None and "int" in kind else each
             for (name, kind), each in zip(columns, row, strict=True)}
            for row in values
        ]  # fmt: skip
    return {row["id"]: canonical(row) for row in found}


class Shop:
    """A database with a table of customers, captured."""

    def __init__(self, bootstrap: str, database: AnyDatabase, kind: str, run: CaptureRun, name: str) -> None:
        self.bootstrap, self.database, self.kind, self.run, self.name = bootstrap, database, kind, run, name
        schema = {"sqlite": "main", "postgres": "public"}.get(kind) or getattr(database, "name", "")
        self.topic = table_topic(name, f"{schema}.customers")

    def follow(self, name: str, into: Any) -> Follow:
        return Follow(
            name=f"{self.name}-{name.replace(' ', '-')}", topic=self.topic, into=into, format="debezium",
            transactions=transaction_topic(self.name),
        )  # fmt: skip

    def in_topic(self) -> dict[int, bytes]:
        return {
            each["id"]: canonical(each) for each in folded(read_topic(self.bootstrap, self.topic)).values()
        }

    def wait_for_topic(self) -> dict[int, bytes]:
        """Until the topic has what the database has; the rows."""
        wait_until(lambda: self.in_topic() == in_database(self.database, self.kind))
        return self.in_topic()

    def is_followed(self, run: Any) -> bool:
        return (
            has_all(run) and verify_follow(run.follow, Connection(bootstrap_servers=self.bootstrap)).is_equal
        )


@contextlib.contextmanager
def shop(
    bootstrap: str,
    kind: str,
    request: pytest.FixtureRequest,
    folder: Path,
    tables: tuple[str, ...] = ("customers",),
) -> Iterator[Shop]:
    name = f"changing{next(_numbers)}"
    with opened(kind, request, folder) as database:
        database.run(
            f"CREATE TABLE customers ({COLUMNS})", *[f"INSERT INTO customers VALUES {row}" for row in ROWS]
        )
        database.run("CREATE TABLE suppliers (id int PRIMARY KEY)")
        with running(bootstrap, name, lambda: database.source(tables=tables), takes_all=not tables) as run:
            wait_until(lambda: run.status.state == "streaming")
            yield Shop(bootstrap, database, kind, run, name)


def cells(changes: tuple[str, ...], default: dict[str, tuple[str, ...]]) -> list[Any]:
    """Every change of every source; those that are not run by default are slow."""
    return [
        pytest.param(change, kind, id=f"{change} in {kind}",
                     marks=[] if change in default[kind] else pytest.mark.slow)
        for kind in KINDS for change in changes
    ]  # fmt: skip


COLUMN_CHANGES = (*CHANGES, "retyped")


@pytest.mark.parametrize(
    ("change", "kind"),
    cells(COLUMN_CHANGES, {"sqlite": COLUMN_CHANGES, "postgres": ("dropped",), "mariadb": ("renamed",)}),
)
def test_every_derived_system_has_the_columns_of_the_table(change, kind, bootstrap, request, tmp_path):
    statements = RETYPED[kind] if change == "retyped" else CHANGES[change]
    with shop(bootstrap, kind, request, tmp_path) as made, contextlib.ExitStack() as opened_:
        follows = [made.follow(each, TARGETS[each](request, tmp_path)) for each in EMBEDDED]
        runs = [opened_.enter_context(following(bootstrap, each)) for each in follows]
        for run in runs:
            wait_until(lambda run=run: made.is_followed(run))
        made.database.run(*statements, TOUCHED)
        rows = made.wait_for_topic()
        for run in runs:
            wait_until(lambda run=run: made.is_followed(run))
            assert not run.status.dead, (run.follow.name, change)
        assert len(rows) == len(ROWS) and not made.run.status.error


@pytest.mark.slow
@pytest.mark.parametrize("change", COLUMN_CHANGES)
@pytest.mark.parametrize("target", [each for each in TARGETS if each not in EMBEDDED])
def test_a_server_has_the_columns_of_the_table(change, target, bootstrap, request, tmp_path):
    statements = RETYPED["sqlite"] if change == "retyped" else CHANGES[change]
    with (
        shop(bootstrap, "sqlite", request, tmp_path) as made,
        following(bootstrap, made.follow(target, TARGETS[target](request, tmp_path))) as run,
    ):
        wait_until(lambda: made.is_followed(run))
        made.database.run(*statements, TOUCHED)
        made.wait_for_topic()
        wait_until(lambda: made.is_followed(run))
        assert not run.status.dead


def found_by(path: Path, words: str) -> list[int]:
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT row FROM customers WHERE customers MATCH ?", (words,)).fetchall()
    return sorted(orjson.loads(row)["id"] for (row,) in found)


def test_an_index_over_a_column_that_is_renamed_says_so_and_is_made_anew_over_others(
    bootstrap, request, tmp_path
):
    path = tmp_path / "search.db"

    def over(*fields: str) -> Any:
        return search(f"sqlite:///{path}", "customers", fields=fields)

    with shop(bootstrap, "sqlite", request, tmp_path) as made:
        with following(bootstrap, made.follow("index", over("name", "city"))) as run:
            wait_until(lambda: made.is_followed(run))
            made.database.run("ALTER TABLE customers RENAME COLUMN city TO town", TOUCHED)
            made.wait_for_topic()
            wait_until(lambda: "no column city" in (run.status.error or ""))
            assert run.status.state == "reconnecting" and "fields=" in run.status.error
            assert found_by(path, "city: oslo") == [1], "what was found before still is"
        with following(bootstrap, made.follow("index", over("name", "town"))) as run:
            wait_until(lambda: made.is_followed(run))
            assert found_by(path, "town: oslo") == [4] and found_by(path, "town: bern") == [2]


@pytest.mark.parametrize(
    ("change", "kind"),
    cells(
        ("gone", "another name"), {"sqlite": ("gone", "another name"), "postgres": ("gone",), "mariadb": ()}
    ),
)
@pytest.mark.parametrize("is_named", [True, False], ids=["named", "one of all"])
def test_a_table_that_is_gone_is_named_and_derived_systems_keep_its_rows(
    change, kind, is_named, bootstrap, request, tmp_path
):
    statement = "DROP TABLE customers" if change == "gone" else "ALTER TABLE customers RENAME TO clients"
    with (
        shop(bootstrap, kind, request, tmp_path, ("customers",) if is_named else ()) as made,
        following(bootstrap, made.follow("kept", TARGETS["sqlite table"](request, tmp_path))) as run,
    ):
        wait_until(lambda: made.is_followed(run))
        made.database.run("DELETE FROM customers WHERE id = 3", statement)
        said = made.run
        wait_until(lambda: said.status.error is not None)
        assert "customers" in said.status.error
        waits = kind == "sqlite" and is_named
        assert said.status.state == ("reconnecting" if waits else "stopped")
        if not is_named:
            said.resume()
            wait_until(lambda: said.status.state == "streaming")
        wait_until(lambda: set(made.in_topic()) == {1, 2} and made.is_followed(run))
