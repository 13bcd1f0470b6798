"""The first load of a real PostgreSQL: every row once, whatever is written or ends meanwhile."""

from collections import Counter
from collections.abc import Callable

import pytest
from tests.integration.capture.conftest import running, wait_until
from tests.integration.capture.postgres.conftest import started
from tests.integration.capture.postgres.databases import Database
from tests.integration.capture.reading import folded, read_topic

from headrace.capture import CaptureRun
from headrace.capture.postgres import PostgresSource
from headrace.capture.source import LoadedRows
from headrace.errors import RetriableError
from headrace.testing.postgres_process import PASSWORD

pytestmark = pytest.mark.xdist_group("postgres")

TABLES = (
    "CREATE TABLE t (id int PRIMARY KEY, v text)",
    "INSERT INTO t SELECT g, repeat('x', 900) || g FROM generate_series(1, 60000) g",
    "CREATE TABLE bare (n int, v text)",
    "ALTER TABLE bare REPLICA IDENTITY FULL",
    "INSERT INTO bare SELECT g % 1000, repeat('y', 300) FROM generate_series(1, 8000) g",
    "CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (1000)",
    "CREATE TABLE part_2 (v text, id int NOT NULL)",
    "ALTER TABLE parts ATTACH PARTITION part_2 FOR VALUES FROM (1000) TO (2000)",
    "INSERT INTO parts SELECT g, 'p' FROM generate_series(500, 1499) g",
    "CREATE TABLE empty (id int PRIMARY KEY)",
)
READERS = (
    "FROM pg_stat_activity WHERE query LIKE 'SELECT%ctid%' AND datname = current_database() "
    "AND pid <> pg_backend_pid()"
)


def watched(
    database: Database, on_rows: Callable[[LoadedRows, int], None], tables: tuple[str, ...] = ()
) -> Callable[[], PostgresSource]:
    """A source that tells of the rows of its first load: the table, and how many blocks there were before."""

    class Watched(PostgresSource):
        def first_load(self, tables):
            load = super().first_load(tables)
            if load is None:
                return None
            take, blocks = load.next, iter(range(1_000_000))

            def take_and_tell(wait_s):
                read = take(wait_s)
                if read is not None:
                    on_rows(read, next(blocks))
                return read

            load.next = take_and_tell
            return load

    return lambda: Watched(database.address, PASSWORD, name="test", tables=tables, load_workers=3)


def has_all(bootstrap: str, name: str, database: Database) -> bool:
    """Whether each topic folds to its table; of one without keys every row came once."""
    for table in ("t", "parts", "empty"):
        rows = folded(read_topic(bootstrap, f"{name}.public.{table}"))
        if {str(each["id"]): each for each in rows.values()} != database.rows(table, "id"):
            return False
    told = [each.value for each in read_topic(bootstrap, f"{name}.public.bare")]
    counted = Counter((each["after"] or each["before"])["n"] for each in told if each["op"] in ("r", "c"))
    counted.subtract((each["after"] or each["before"])["n"] for each in told if each["op"] == "d")
    wanted = Counter(int(each[0] or 0) for each in database.run("SELECT n FROM bare"))
    return +counted == wanted


def is_streaming(run: CaptureRun) -> bool:
    return run.status.state == "streaming"


def test_every_row_is_loaded_while_tables_are_written_to(bootstrap, database):
    """Rows that are written meanwhile come out of the stream; DDL waits, and progress is told."""
    database.run(*TABLES)
    seen = []

    def write(read: LoadedRows, block: int) -> None:
        seen.append(read.table)
        if block == 2:
            database.run(
                "UPDATE t SET v = 'changed' WHERE id % 7 = 0",
                "DELETE FROM t WHERE id > 59000",
                "INSERT INTO t SELECT g, 'new' FROM generate_series(70000, 70100) g",
                "INSERT INTO bare VALUES (-1, 'new')",
                "DELETE FROM bare WHERE n = 4",
                "UPDATE parts SET id = id + 550 WHERE id BETWEEN 950 AND 999",
            )

    name = f"loaded-{database.server.version}"
    with running(bootstrap, name, watched(database, write)) as run:
        wait_until(lambda: is_streaming(run) and run.status.changes > 0)
        wait_until(lambda: has_all(bootstrap, name, database))
        loaded = {table: each.rows for table, each in run.status.tables.items()}
    assert set(seen) == {"public.t", "public.bare", "public.parts", "public.empty"}
    assert loaded["public.t"] == 60_000 and loaded["public.bare"] == 8_000
    ops = Counter(each.value["op"] for each in read_topic(bootstrap, f"{name}.public.t") if each.value)
    assert ops["r"] == 60_000


def test_a_load_that_ends_early_begins_again_and_reads_its_other_tables_in_chunks(
    bootstrap, database, caplog, monkeypatch
):
    """Once among rows that are held back, and once behind them, before others that were read already."""
    database.run(*TABLES)
    monkeypatch.setattr("headrace.capture.run._LONGEST_BATCH_S", 0)
    ends, written = ["held back", "written"], []

    def end(read: LoadedRows, block: int) -> None:
        """At the first rows of the one table, and then at those of the other after some were written."""
        if (read.table == "public.bare" and len(ends) == 2) or (written.count("public.t") and len(ends) == 1):
            assert database.run(f"SELECT pg_terminate_backend(pid) {READERS}"), "nothing was left to read"
            database.run("DELETE FROM t WHERE id % 10 = 3", "INSERT INTO bare VALUES (-2, 'new')")
            raise RetriableError(f"ended while its rows are {ends.pop(0)}")
        if (read.table == "public.bare" and read.is_whole) or written:
            written.append(read.table)

    name = f"ended-{database.server.version}"
    with running(bootstrap, name, watched(database, end)) as run:
        wait_until(lambda: is_streaming(run))
        assert not ends and run.status.reconnects >= 1
        wait_until(lambda: has_all(bootstrap, name, database))
    assert "read again from its beginning, in chunks" in caplog.text
    assert "public.bare" not in caplog.text


def test_a_load_that_takes_longer_than_the_server_waits_for_its_reader_is_not_ended(bootstrap):
    """The server gives up on a reader that is silent for two seconds; the first block takes five."""
    long_ago = "SELECT 1 FROM pg_stat_replication WHERE backend_start < clock_timestamp() - interval '5 s'"
    with started(wal_sender_timeout="2s") as server, Database(server, "slow") as database:
        database.run(*TABLES[:2])

        def be_slow(_read, number):
            if number == 0:
                wait_until(lambda: database.run(long_ago), 20)

        with running(bootstrap, "slow", watched(database, be_slow)) as run:
            wait_until(lambda: run.status.state == "streaming")
            database.run("INSERT INTO t VALUES (0, 'later')")
            wait_until(lambda: run.status.changes == 1)
            assert (run.status.reconnects, run.status.error) == (0, None)
        assert len(folded(read_topic(bootstrap, "slow.public.t"))) == 60_001
