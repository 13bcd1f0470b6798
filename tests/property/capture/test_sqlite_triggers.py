"""Whatever is done to a table of SQLite, its captured changes fold to what another connection reads there.

Random statements by several connections, with rollbacks and savepoints; each kind of table; changes of
its columns in between.
"""

import random
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from headrace.capture import Change, Resnapshot
from headrace.capture.snapshot import PendingChunk
from headrace.capture.sqlite import SqliteSource
from headrace.capture.sqlite.tables import read_table
from headrace.capture.sqlite.values import row_encoder
from headrace.errors import ConfigError

TABLES = {
    "integer key": "CREATE TABLE t (id INTEGER PRIMARY KEY, u, w INT, x INT, v)",
    "integer key and uniques": (
        "CREATE TABLE t "
        "(id INTEGER PRIMARY KEY, u TEXT UNIQUE COLLATE NOCASE, w INT, x INT, v, UNIQUE (w, x))"
    ),
    "text key": "CREATE TABLE t (id TEXT PRIMARY KEY NOT NULL, u TEXT UNIQUE, w INT, x INT, v)",
    "key of two": (
        "CREATE TABLE t (v, id INT NOT NULL, u TEXT UNIQUE, w INT NOT NULL, x INT, PRIMARY KEY (w, id))"
    ),
    "without rowid": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, u TEXT UNIQUE, w INT, x INT, v, UNIQUE (w, x)) WITHOUT ROWID"
    ),
    "odd names": 'CREATE TABLE t (id INTEGER PRIMARY KEY, u UNIQUE, w, x, v, rowid, "a ""b" AS (w + 1))',
}
INDEXES = {"integer key": ["CREATE UNIQUE INDEX i ON t (upper(u), x + 1) WHERE w > 1"]}
VALUES = (None, 0, 1, -1, 2**53 + 1, -(2**63), 1.5, float("inf"), "", "ü'\"\n", "x" * 5000, b"", b"\x00\xff")

Folded = dict[bytes, bytes]


class Follower:
    """What a reader of the topic knows: the newest row of each key."""

    def __init__(self, source: SqliteSource) -> None:
        self.source = source
        self.position = source.connect(None)
        self.rows: Folded = {}
        self.again = {"main.t"}

    def follow(self) -> Folded:
        """Everything that was committed, and the table's snapshot where it has to be read again."""
        self._apply()
        while self.again:
            self.again.clear()
            seen = set(self.rows)
            for read in self._chunks():
                for change in read:
                    self._fold(change)
                    seen.discard(change.key)
            gone = PendingChunk(self.source.read_keys("main.t", sorted(seen)))
            self._reach(gone)
            for change in gone.rows():
                self._fold(change)
        return self.rows

    def _chunks(self) -> Iterator[list[Change]]:
        cursor = None
        while True:
            pending = PendingChunk(self.source.read_chunk("main.t", cursor, 7))
            self._reach(pending)
            yield list(pending.rows())
            cursor = pending.chunk.cursor
            if cursor is None:
                return

    def _reach(self, pending: PendingChunk) -> None:
        while not pending.is_reached(self.position):
            self._apply()

    def _apply(self) -> None:
        for transaction in self.source.transactions(0):
            for item in transaction.changes:
                if isinstance(item, Change):
                    self._fold(item)
                elif isinstance(item, Resnapshot):
                    self.again.add(item.table)
            self.position = transaction.position
            self.source.acknowledge(transaction.position)

    def _fold(self, change: Change) -> None:
        assert change.key is not None
        if change.op == "d":
            assert change.before is None or change.key in self.rows, "a delete was told twice"
            self.rows.pop(change.key, None)
        else:
            if change.op == "u":
                assert self.rows[change.key] == change.before
            self.rows[change.key] = change.after or b""


def judged(path: Path) -> Folded:
    """The table as another connection reads it."""
    with sqlite3.connect(path) as judge:
        table = read_table(judge, "t")
        assert table is not None
        encode = row_encoder(table.columns)
        encode_key = row_encoder([each for each in table.columns if each.name in table.key])
        columns = ", ".join('"' + each.replace('"', '""') + '"' for each in table.names)
        key = [at for at, each in enumerate(table.names) if each in table.key]
        rows = judge.execute(f"SELECT {columns} FROM t").fetchall()
    return {encode_key([row[at] for at in key]): encode(row) for row in rows}


class Writers:
    """Connections that write at random, each in and out of transactions."""

    def __init__(self, path: Path, numbers: random.Random) -> None:
        self.numbers = numbers
        self.connections = [sqlite3.connect(path, isolation_level=None, timeout=0) for _ in range(3)]
        for at, each in enumerate(self.connections):
            each.execute(f"PRAGMA recursive_triggers = {at % 2}")
            each.execute("PRAGMA synchronous = OFF")

    def act(self) -> None:
        """One statement of one of them; another may be in its way."""
        writer, choose = self.numbers.choice(self.connections), self.numbers.choice
        try:
            writer.execute(*self._statement(writer, choose))
        except (sqlite3.IntegrityError, sqlite3.OperationalError):
            if writer.in_transaction and self.numbers.random() < 0.5:
                writer.execute("ROLLBACK")

    def _statement(self, writer: sqlite3.Connection, choose: Callable) -> tuple:
        if self.numbers.random() < 0.25:
            begun = ("COMMIT", "COMMIT", "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s", "RELEASE s")
            return (choose(begun) if writer.in_transaction else choose(("BEGIN", "BEGIN IMMEDIATE")),)
        some = {
            "id": self.numbers.randint(1, 12),
            "u": choose(["a", "A", "b", "c", "d", None, self.numbers.randint(1, 99)]),
            "w": choose([None, 1, 2, 3]) if self.numbers.random() < 0.3 else self.numbers.randint(1, 4),
            "x": self.numbers.randint(1, 3),
            "v": choose(VALUES),
            "e": self.numbers.randint(1, 12),
        }
        kind = self.numbers.random()
        if kind < 0.55:
            verb = choose(["INSERT", "INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE", "INSERT OR FAIL"])
            upsert = choose(["", "", " ON CONFLICT DO UPDATE SET v = excluded.v", " ON CONFLICT DO NOTHING"])
            if verb != "INSERT":
                upsert = ""
            row = "(:id, :u, :w, :x, :v)"
            rows = choose([row, f"{row}, (:e, :u || 'x', :w, :x + 1, :v)"])
            return f"{verb} INTO t (id, u, w, x, v) VALUES {rows}{upsert}", some
        if kind < 0.9:
            verb = choose(["UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE", "UPDATE OR FAIL"])
            change = choose(
                ["u = :u", "id = :id", "w = :w", "v = :v", "w = :w, u = :u", "id = id + 1", "v = v"]
            )
            return f"{verb} t SET {change} WHERE {choose(['id = :e', 'id < :e'])}", some
        return choose([("DELETE FROM t WHERE id = :e", some), ("DELETE FROM t WHERE id > :e", some)])

    def commit(self) -> None:
        for each in self.connections:
            if each.in_transaction:
                each.execute("COMMIT")

    def close(self) -> None:
        for each in self.connections:
            each.close()


def prepared(path: Path, kind: str, journal: str) -> None:
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA journal_mode = {journal}")
        for statement in [TABLES[kind], *INDEXES.get(kind, [])]:
            database.execute(statement)
        database.execute("INSERT INTO t (id, u, w, x, v) VALUES (1, 'a', 1, 1, 'x'), (2, 'b', 2, 1, 'y')")


def compare(tmp_path: Path, kind: str, seed: int, statements: int, between: list[str]) -> None:
    path, numbers = tmp_path / f"{seed}.db", random.Random(seed)
    prepared(path, kind, numbers.choice(["WAL", "DELETE"]))
    follower, writers = Follower(SqliteSource(path, ["t"], name="test")), Writers(path, numbers)
    try:
        assert follower.follow() == judged(path)
        for number in range(statements):
            writers.act()
            if numbers.random() < 0.15:
                writers.commit()
                if between and numbers.random() < 0.2:
                    writers.connections[0].execute(between.pop(0))
                assert follower.follow() == judged(path), f"{kind}, seed {seed}, statement {number}"
        writers.commit()
        for statement in between:
            writers.connections[0].execute(statement)
            assert follower.follow() == judged(path), f"{kind}, seed {seed}: {statement}"
    finally:
        writers.close()
        follower.source.close()


@pytest.mark.parametrize("kind", TABLES)
def test_random_statements_fold_to_the_table(tmp_path, kind):
    for seed in range(3):
        compare(tmp_path, kind, seed, 150, [])


@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLES)
def test_many_random_statements_fold_to_the_table(tmp_path, kind):
    for seed in range(100, 140):
        compare(tmp_path, kind, seed, 500, [])


SCHEMA_CHANGES = [
    "ALTER TABLE t ADD COLUMN added DEFAULT 7",
    "UPDATE t SET added = id",
    "ALTER TABLE t RENAME COLUMN v TO vv",
    "ALTER TABLE t RENAME COLUMN vv TO v",
]


@pytest.mark.parametrize("kind", ["integer key", "text key", "without rowid"])
def test_changes_of_columns_are_carried(tmp_path, kind):
    for seed in range(2):
        compare(tmp_path, kind, seed, 60, list(SCHEMA_CHANGES))


def test_a_table_that_was_rebuilt_is_read_again_with_what_is_gone_from_it(tmp_path):
    path = tmp_path / "t.db"
    prepared(path, "integer key", "WAL")
    follower = Follower(SqliteSource(path, ["t"], name="test"))
    follower.follow()
    with sqlite3.connect(path) as database:
        database.executescript(
            "BEGIN; CREATE TABLE n (id INTEGER PRIMARY KEY, u, w, x, v, more); "
            "INSERT INTO n SELECT *, 1 FROM t WHERE id <> 1; DROP TABLE t; ALTER TABLE n RENAME TO t; "
            "INSERT INTO t (id) VALUES (9); COMMIT"
        )
    assert follower.follow() == judged(path)
    assert sorted(orjson.loads(each)["id"] for each in follower.rows) == [2, 9]


def test_a_column_can_be_dropped_once_its_triggers_are_gone(tmp_path):
    path = tmp_path / "t.db"
    prepared(path, "without rowid", "WAL")
    follower = Follower(SqliteSource(path, ["t"], name="test"))
    follower.follow()
    with sqlite3.connect(path) as database:
        with pytest.raises(sqlite3.OperationalError, match="_headrace_test_t_"):
            database.execute("ALTER TABLE t DROP COLUMN v")
        SqliteSource(path, ["t"], name="test").remove_triggers()
        database.execute("ALTER TABLE t DROP COLUMN v")
        database.execute("DELETE FROM t WHERE id = 1")
    assert follower.follow() == judged(path)


def test_everything_is_taken_out_again(tmp_path):
    path = tmp_path / "t.db"
    prepared(path, "without rowid", "WAL")
    with sqlite3.connect(path) as judge:
        before = judge.execute("SELECT * FROM sqlite_master").fetchall()
        source = SqliteSource(path, ["t"], name="test")
        source.connect(None)
        assert judge.execute("SELECT * FROM sqlite_master").fetchall() != before
        source.close()
        source.remove()
        assert judge.execute("SELECT * FROM sqlite_master").fetchall() == before


def test_what_the_log_has_is_trimmed_and_no_number_is_given_out_twice(tmp_path, monkeypatch):
    monkeypatch.setattr("headrace.capture.sqlite.source._TRIM_S", 0)
    path = tmp_path / "t.db"
    prepared(path, "integer key", "WAL")
    follower = Follower(SqliteSource(path, ["t"], name="test"))
    follower.follow()
    with sqlite3.connect(path) as database:
        for number in range(20):
            database.execute("UPDATE t SET v = ?", (number,))
            database.commit()
            assert follower.follow() == judged(path)
        list(follower.source.transactions(0))
        kept = database.execute("SELECT count(*), max(seq) FROM _headrace_test_changes").fetchone()
    assert kept == (1, 40)


def wide(path: Path, columns: int) -> SqliteSource:
    """A source of a table with so many columns, and one row."""
    with sqlite3.connect(path) as database:
        database.execute(
            f"CREATE TABLE t (id TEXT UNIQUE, {', '.join(f'v{each}' for each in range(1, columns))})"
        )
        database.execute("INSERT INTO t (id) VALUES ('a')")
    return SqliteSource(path, [], name="test")


@pytest.mark.slow
def test_a_table_with_the_most_columns_that_fit_is_captured(tmp_path):
    path = tmp_path / "t.db"
    source = wide(path, 998)
    assert source.check() == []
    source.connect(None)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE t SET v997 = 1")
        database.execute("REPLACE INTO t (id, v997) VALUES ('a', 2)")
        database.commit()
    told = [item for each in source.transactions(0) for item in each.changes]
    source.close()
    assert [each.op for each in told] == ["u", "d", "c"]
    assert [orjson.loads(each.after or each.before)["v997"] for each in told] == [1, 1, 2]


def test_a_table_with_one_column_more_is_refused(tmp_path):
    source = wide(tmp_path / "t.db", 999)
    with pytest.raises(ConfigError, match="table t has 999 columns; a table with more than 998"):
        source.check()
    with pytest.raises(ConfigError, match="more than 998"):
        source.connect(None)
