"""Whatever is written, however often either side is cut off: topics hold what tables hold, changes once."""

import contextlib
import os
import random
import threading

import pytest
from tests.integration.capture.mysql.conftest import started
from tests.integration.capture.mysql.databases import Database, Follower, followed
from tests.integration.capture.mysql.workload import SETUP, TABLES, Workload
from tests.integration.capture.postgres.following import Folded

from headrace.errors import RetriableError

pytestmark = pytest.mark.xdist_group("mysql")


def seed() -> int:
    chosen = int(os.environ.get("HEADRACE_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HEADRACE_SEED={chosen}")
    return chosen


@contextlib.contextmanager
def written(database: Database, chosen: int, transactions: int, writers: int = 2):
    """Several writers at once, each with its own statements; ends when all have."""

    def write(number: int) -> None:
        workload, done, connection = Workload(chosen + number), 0, None
        while done < transactions:
            try:
                if connection is None:
                    connection = database.connect()
                    connection.query(f"USE {database.name}")
                workload.transact(connection)
                done += 1
            except RetriableError:  # the server is being restarted, or the other one was faster
                if connection is not None:
                    connection.close()
                connection = None

    threads = [threading.Thread(target=write, args=(each,)) for each in range(writers)]
    for each in threads:
        each.start()
    try:
        yield threads
    finally:
        for each in threads:
            each.join(300)


def in_use(threads: list[threading.Thread]) -> bool:
    return any(each.is_alive() for each in threads)


def assert_equal(database: Database, folded: Folded) -> None:
    """The folded rows are those of a fresh snapshot of the database: read another way."""
    fresh = Folded()
    followed(database, fresh, name="judge")
    for table in TABLES:
        name = f"{database.name}.{table}"
        assert told(folded, name) == told(fresh, name), f"{name} differs"


def told(folded: Folded, table: str) -> dict:
    """The rows without nulls: those from before an empty column was added do not have it."""
    rows = folded.tables.get(table, {})
    return {
        key: {name: value for name, value in row.items() if value is not None} for key, row in rows.items()
    }


def assert_each_once(folded: Folded) -> None:
    """No change twice, and all in the order of the log."""
    changes = [(each.table, each.key, each.op, each.source) for each in folded.log if each.op in "cud"]
    changes = [each for each in changes if b'"gtid":"' in each[3]]
    assert len(set(changes)) == len(changes)


def follow(database: Database, chosen: int, transactions: int, cuts: int, chunk_rows: int = 7) -> Folded:
    chance, folded, source = random.Random(chosen), Folded(), database.source()
    Follower(source, folded, chunk_rows=chunk_rows).round(0.02)  # whatever is written now is a change
    source.close()
    with written(database, chosen, transactions) as threads:
        while in_use(threads) or cuts > 0:
            source = database.source()
            with contextlib.suppress(RetriableError):  # a table has other columns since it was looked at
                follower = Follower(source, folded, chunk_rows=chunk_rows)
                for _ in range(chance.randrange(1, 25)):
                    follower.round(0.02)
            source.close()
            cuts -= 1
    followed(database, folded, chunk_rows=chunk_rows)
    return folded


def test_topics_hold_what_tables_hold_after_random_transactions(database):
    chosen = seed()
    database.run(*SETUP)
    folded = follow(database, chosen, transactions=40, cuts=2)
    assert_equal(database, folded)
    assert_each_once(folded)
    assert {each.op for each in folded.log} >= {"r", "c", "u", "d"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(4))
def test_many_workloads_with_many_cuts(database, number):
    chosen = seed() + number
    database.run(*SETUP)
    folded = follow(database, chosen, transactions=300, cuts=15, chunk_rows=20)
    assert_equal(database, folded)
    assert_each_once(folded)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(3))
def test_rows_that_are_hot_are_never_overwritten_by_an_older_chunk(database, number):
    """Many snapshots of few rows that change all the time: no state of a row comes twice or goes back."""
    database.run(
        "CREATE TABLE hot (id int PRIMARY KEY, n int)", "INSERT INTO hot VALUES (1, 0), (2, 0), (3, 0)"
    )
    stopping = threading.Event()

    def write(key: int) -> None:
        with database.connect() as connection:
            while not stopping.is_set():
                connection.query(f"UPDATE {database.name}.hot SET n = n + 1 WHERE id = {key}")
                stopping.wait(0.001)

    writers = [threading.Thread(target=write, args=(each,)) for each in (1, 2, 3)]
    for each in writers:
        each.start()
    folded, source = Folded(), database.source()
    try:
        follower = Follower(source, folded, chunk_rows=1)
        for _ in range(40):
            folded.state = folded.state.resnapshot([f"{database.name}.hot"])
            while folded.state.tables[f"{database.name}.hot"].phase == "rows":
                follower.round(0.01)
    finally:
        stopping.set()
        for each in writers:
            each.join(60)
    follower.settle(database.end())
    source.close()
    seen: dict[bytes | None, int] = {}
    for change in folded.log:
        after = int((change.after or b"").rpartition(b":")[2].rstrip(b"}"))
        assert after >= seen.get(change.key, 0), f"{change.op} of {change.key!r} went back"
        assert (
            change.op == "r"
            or after == seen.get(change.key, after - 1) + 1
            or b'"n":' not in (change.before or b"")
        )
        seen[change.key] = after
    assert_each_once(folded)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("product", ["mariadb", "mysql"])
def test_a_server_that_is_stopped_hard_ten_times_loses_nothing(product):
    chosen = seed()
    chance = random.Random(chosen)
    durable = {"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1"}
    with started(product, **durable) as server, Database(server, "shop") as database:
        database.run(*SETUP)
        database.disconnect()
        folded = Folded()
        with written(database, chosen, 200):
            for _ in range(10):
                source = database.source()
                with contextlib.suppress(RetriableError):
                    follower = Follower(source, folded, chunk_rows=20)
                    for _ in range(chance.randrange(5, 30)):
                        follower.round(0.02)
                    server.stop(hard=True)
                    server.start()
                    follower.round(0.02)
                source.close()
        followed(database, folded)
        assert_equal(database, folded)
        assert_each_once(folded)
