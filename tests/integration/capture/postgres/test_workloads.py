"""Whatever is written, however often either side is cut off: topics hold what tables hold, changes once."""

import contextlib
import os
import random
import threading

import orjson
import psutil
import pytest
from tests.integration.capture.postgres.conftest import started
from tests.integration.capture.postgres.databases import Database
from tests.integration.capture.postgres.following import Folded, Follower
from tests.integration.capture.postgres.workload import SETUP, TABLES, Workload

from headrace.capture import Change, one_by_one
from headrace.errors import RetriableError

pytestmark = pytest.mark.xdist_group("postgres")


def seed() -> int:
    chosen = int(os.environ.get("HEADRACE_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HEADRACE_SEED={chosen}")
    return chosen


@contextlib.contextmanager
def written(database: Database, chosen: int, transactions: int, writers: int = 2):
    """Several writers at once, each with its own statements; ends when all have."""

    def write(number: int) -> None:
        workload, done = Workload(chosen + number), 0
        connection = None
        while done < transactions:
            try:
                connection = connection or database.connect()
                workload.transact(connection)
                done += 1
            except RetriableError:  # the server is being restarted, or the other one was faster
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
    """The folded rows are those of a fresh snapshot of the database: the same encoder, another way."""
    fresh, source = Folded(), database.source("judge")
    Follower(source, fresh).settle(database.end())
    source.close()
    for table in TABLES:
        name = f"public.{table}"
        assert folded.tables.get(name, {}) == fresh.tables.get(name, {}), f"{name} differs"


def assert_each_once(folded: Folded) -> None:
    """No change twice, and those of a key in the order of the log."""
    changes = [each for each in folded.log if each.op != "r" and b'"lsn":' in each.source]
    told = [(each.table, each.key, each.op, each.source) for each in changes]
    assert len(set(told)) == len(told)
    places: dict[tuple[str, bytes | None], list[int]] = {}
    for each in changes:
        place = orjson.loads(b"{" + each.source + b"}")["lsn"]
        places.setdefault((each.table, each.key), []).append(place)
    assert all(each == sorted(each) for key, each in places.items() if key[1] is not None)


def follow(database: Database, chosen: int, transactions: int, cuts: int, chunk_rows: int = 7) -> Folded:
    chance, folded, source = random.Random(chosen), Folded(), database.source()
    Follower(source, folded, chunk_rows=chunk_rows).round(0.02)  # whatever is written now is a change
    source.close()
    with written(database, chosen, transactions) as threads:
        while in_use(threads) or cuts > 0:
            source = database.source()
            with contextlib.suppress(RetriableError):  # the slot is still in use by the connection before
                follower = Follower(source, folded, chunk_rows=chunk_rows)
                for _ in range(chance.randrange(1, 25)):
                    follower.round(0.02)
            source.close()
            cuts -= 1
    source = database.source()
    while True:
        try:
            Follower(source, folded, chunk_rows=chunk_rows).settle(database.end())
            break
        except RetriableError:
            source.close()
            source = database.source()
    source.close()
    return folded


def test_topics_hold_what_tables_hold_after_random_transactions(database):
    chosen = seed()
    database.run(*SETUP, "INSERT INTO accounts SELECT g, 'old' || g, g FROM generate_series(1, 60) g")
    folded = follow(database, chosen, transactions=40, cuts=3)
    assert_equal(database, folded)
    assert_each_once(folded)
    assert {each.op for each in folded.log} >= {"r", "c", "u", "d"}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
def test_many_workloads_with_many_cuts(database, number):
    chosen = seed() + number
    database.run(*SETUP, "INSERT INTO accounts SELECT g, 'old' || g, g FROM generate_series(1, 500) g")
    folded = follow(database, chosen, transactions=400, cuts=20, chunk_rows=40)
    assert_equal(database, folded)
    assert_each_once(folded)


def hard_stops(chosen: int, transactions: int, stops: int) -> None:
    chance = random.Random(chosen)
    with started() as server, Database(server, "shop") as database:
        database.run(*SETUP, "INSERT INTO accounts SELECT g, 'old' || g, g FROM generate_series(1, 200) g")
        folded = Folded()
        with written(database, chosen, transactions) as threads:
            for _ in range(stops):
                source = database.source()
                with contextlib.suppress(RetriableError):
                    follower = Follower(source, folded, chunk_rows=20)
                    for _ in range(chance.randrange(5, 30)):
                        follower.round(0.02)
                    server.stop(hard=True)
                    follower.round(0.02)
                source.close()
                server.stop(hard=True)
                database.disconnect()
                server.start()
            for each in threads:
                each.join(300)
        source = database.source()
        Follower(source, folded, chunk_rows=20).settle(database.end())
        source.close()
        assert_equal(database, folded)
        assert_each_once(folded)


def test_a_server_that_is_stopped_hard_loses_and_doubles_nothing():
    hard_stops(seed(), transactions=25, stops=1)


@pytest.mark.slow
def test_a_server_that_is_stopped_hard_ten_times_loses_and_doubles_nothing():
    hard_stops(seed(), transactions=300, stops=10)


@pytest.mark.slow
def test_a_snapshot_is_exact_while_hot_rows_change(database):
    """Rows that change all the time, in chunks of a few rows: no row goes back to an older version."""
    database.run(
        "CREATE TABLE hot (id int PRIMARY KEY, version bigint)",
        "CREATE SEQUENCE versions CACHE 1",
        "INSERT INTO hot SELECT g, 0 FROM generate_series(1, 40) g",
    )
    stopping = threading.Event()

    def write(first: int) -> None:
        connection, chance = database.connect(), random.Random(first)
        while not stopping.is_set():
            connection.query(
                f"UPDATE hot SET version = nextval('versions') WHERE id = {chance.randint(1, 40)}"
            )
        connection.close()

    threads = [threading.Thread(target=write, args=(each,)) for each in range(3)]
    for each in threads:
        each.start()
    folded, source = Folded(), database.source(tables=["hot"])
    follower = Follower(source, folded, chunk_rows=4)
    try:
        while folded.state.next_snapshot():
            follower.round(0.05)
    finally:
        stopping.set()
        for each in threads:
            each.join(60)
    follower.settle(database.end())
    source.close()
    rows = {row["id"]: row["version"] for row in folded.tables["public.hot"].values()}
    assert rows == {int(i or 0): int(v or 0) for i, v in database.run("SELECT id, version FROM hot")}
    assert sum(each.op == "r" for each in folded.log) <= 40
    seen: dict[bytes | None, int] = {}
    for change in folded.log:
        version = orjson.loads(change.after or b"")["version"]
        assert version >= seen.get(change.key, 0), "a chunk has overwritten a later change"
        seen[change.key] = version


@pytest.mark.slow
def test_a_transaction_of_any_size_is_passed_on_in_little_memory(database):
    """Half a million rows at once, and rows of 50 MB: a row is in memory, a transaction never is."""
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    source, process = database.source(), psutil.Process()
    source.connect(None)
    database.run("INSERT INTO t SELECT g, md5(g::text) || repeat('x', 400) FROM generate_series(1, 500000) g")
    before, most, count = process.memory_info().rss, 0, 0
    while count < 500_000:
        for transaction in source.transactions(10.0):
            for _ in one_by_one(transaction.changes):
                count += 1
                if count % 10_000 == 0:
                    most = max(most, process.memory_info().rss)
    assert most - before < 64 << 20, f"{(most - before) >> 20} MiB"
    database.run("INSERT INTO t SELECT -g, repeat('x', 50000000) FROM generate_series(1, 3) g")
    sizes = [
        len(each.after or b"")
        for transaction in source.transactions(10.0)
        for each in one_by_one(transaction.changes)
        if isinstance(each, Change)
    ]
    source.close()
    assert [size > 50_000_000 for size in sizes] == [True] * 3
