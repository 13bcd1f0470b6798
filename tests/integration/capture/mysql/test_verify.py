"""A database compared with its topics, while it changes, and after it changed unseen."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.integration.capture.hosted import hosted, kinds, once
from tests.integration.capture.mysql.databases import Database

from headrace.capture import CaptureSpec
from headrace.errors import RetriableError

pytestmark = pytest.mark.xdist_group("mysql")
ROWS = 500
NUMBERS = f"SELECT 1 AS seq UNION ALL SELECT seq + 1 FROM s WHERE seq < {ROWS}"
SEQUENCE = f"(WITH RECURSIVE s AS ({NUMBERS}) SELECT * FROM s) s"


@pytest.fixture
def capture(bootstrap, database: Database):
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(99), n decimal(20, 6), f float, d double, "
        "at timestamp(3), e enum('a', 'b'), j json, raw blob)",
        "INSERT INTO t SELECT seq, CONCAT('é ', seq), seq / 3, seq / 7, seq / 7, NOW(3), 'b', '[1.50]', "
        f"0x00ff FROM {SEQUENCE}",
        "CREATE TABLE two (a varchar(20), b binary(4), v int, PRIMARY KEY (b, a))",
        "INSERT INTO two VALUES ('é', 0x00ff, 1)",
    )
    name = f"{database.name}-{database.server.product}"
    spec = CaptureSpec(name=name, url=database.server.url(database.name), chunk_rows=70)
    with hosted(bootstrap, spec) as made:
        yield made


def test_tables_equal_their_topics_at_the_moment_at_which_they_were_read(capture, database):
    with database.connect() as slow:
        if database.is_mariadb:  # MySQL waits for the end of such a transaction
            slow.query("BEGIN")
        slow.query(f"UPDATE {database.name}.t SET v = 'later' WHERE id BETWEEN 30 AND 40")

        def write():
            slow.query("COMMIT")
            database.run(
                "UPDATE t SET v = 'later' WHERE id < 20",
                "DELETE FROM t WHERE id BETWEEN 20 AND 29",
                "UPDATE t SET id = 2000 WHERE id = 50",
                "UPDATE two SET a = 'later'",
            )

        found = capture.verified(once(write))
    assert found.is_equal and [each.rows for each in found.tables] == [ROWS, 1]
    found = capture.verified(once(lambda: database.run("DELETE FROM two")))
    assert found.is_equal and [each.rows for each in found.tables] == [ROWS - 10, 1]
    database.run(
        "SET sql_log_bin = 0",
        "UPDATE t SET n = n + 1 WHERE id = 3",
        "DELETE FROM t WHERE id = 4",
        "INSERT INTO t (id) VALUES (5000)",
        "SET sql_log_bin = 1",
    )
    found = capture.verified(once(lambda: database.run("INSERT INTO two VALUES ('x', 0x01, 2)")))
    assert kinds(found) == {'{"id":3}': "different", '{"id":4}': "extra", '{"id":5000}': "missing"}


def test_a_transaction_of_mysql_that_keeps_writing_is_named(capture, database, monkeypatch):
    if database.is_mariadb:
        pytest.skip("MariaDB tells what a snapshot contains")
    monkeypatch.setattr("headrace.capture.mysql.frozen._PATIENCE_S", 1.5)
    with database.connect() as slow:
        slow.query("BEGIN")
        slow.query(f"UPDATE {database.name}.two SET v = 5")
        with pytest.raises(RetriableError, match="a transaction has been writing to the tables"):
            capture.verified()
        slow.query("COMMIT")
    assert capture.verified().is_equal


@pytest.mark.slow
def test_tables_equal_their_topics_while_four_writers_commit_to_the_same_rows(capture, database):
    """What has been committed and what has not is told apart, also in the middle of commits."""
    done = threading.Event()

    def write(number: int) -> None:
        with database.connect() as connection:
            connection.query(f"USE {database.name}")
            for turn in itertools.count():
                if done.wait(0.02):
                    return
                connection.query(f"UPDATE t SET v = '{number} {turn}' WHERE id BETWEEN 1 AND 5")
                connection.query(f"REPLACE INTO two VALUES ('{turn % 7}', 0x01, {turn})")

    with ThreadPoolExecutor(4) as threads:
        writers = [threads.submit(write, number) for number in range(4)]
        try:
            for _ in range(10):
                found = capture.verified(timeout_s=120)
                assert found.is_equal, found
        finally:
            done.set()
        for each in writers:
            each.result()
