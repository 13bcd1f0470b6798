"""A MariaDB database compared with its topics, while it changes, and after it changed unseen."""

import pytest
from tests.integration.capture.hosted import hosted, kinds, once
from tests.integration.capture.mysql.databases import Database

from headrace.capture import CaptureSpec
from headrace.errors import RequestError

pytestmark = pytest.mark.xdist_group("mysql")
ROWS = 500


@pytest.fixture
def capture(bootstrap, database: Database):
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(99), n decimal(20, 6), f float, d double, "
        "at timestamp(3), e enum('a', 'b'), j json, raw blob)",
        "INSERT INTO t SELECT seq, CONCAT('é ', seq), seq / 3, seq / 7, seq / 7, NOW(3), 'b', '[1.50]', "
        f"0x00ff FROM seq_1_to_{ROWS}"
        if database.is_mariadb
        else "INSERT INTO t (id) VALUES (1)",
        "CREATE TABLE two (a varchar(20), b binary(4), v int, PRIMARY KEY (b, a))",
        "INSERT INTO two VALUES ('é', 0x00ff, 1)",
    )
    name = f"{database.name}-{database.server.product}"
    spec = CaptureSpec(name=name, url=database.server.url(database.name), chunk_rows=70)
    with hosted(bootstrap, spec) as made:
        yield made


def test_tables_equal_their_topics_at_the_moment_at_which_they_were_read(capture, database):
    if not database.is_mariadb:
        with pytest.raises(RequestError, match="MySQL does not say which transactions a snapshot contains"):
            capture.verified()
        return
    with database.connect() as slow:
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
