"""A PostgreSQL database compared with its topics, while it changes, and after it changed unseen."""

import pytest
from tests.integration.capture.hosted import hosted, kinds, once
from tests.integration.capture.postgres.databases import Database

from headrace.capture import CaptureSpec

pytestmark = pytest.mark.xdist_group("postgres")
ROWS = 500


@pytest.fixture
def capture(bootstrap, database: Database):
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text, n numeric, at timestamptz, tags text[], raw jsonb)",
        "INSERT INTO t SELECT n, 'row ' || n, n / 3.0, now(), ARRAY['a', NULL], '{\"b\": [1.50]}'"
        f" FROM generate_series(1, {ROWS}) n",
        "CREATE TABLE two (a text, b uuid, v bytea, PRIMARY KEY (b, a))",
        "INSERT INTO two VALUES ('é', '7cc3a2d2-0000-4000-8000-000000000001', '\\x00ff')",
        "CREATE TABLE large (id int PRIMARY KEY, n int, v text)",
        "ALTER TABLE large ALTER v SET STORAGE EXTERNAL",
        "INSERT INTO large VALUES (1, 0, repeat('x', 5000))",
    )
    name = f"{database.name}_{database.server.version}"
    spec = CaptureSpec(name=name, url=database.server.url(database.name), chunk_rows=70)
    with hosted(bootstrap, spec) as made:
        yield made


def test_tables_equal_their_topics_at_the_moment_at_which_they_were_read(capture, database):
    """Also what a transaction did that had begun before that, and ended later."""
    with database.connect() as slow:
        slow.query("BEGIN")
        slow.query("UPDATE t SET v = 'later' WHERE id BETWEEN 30 AND 40")

        def write():
            slow.query("COMMIT")
            database.run(
                "UPDATE t SET v = 'later' WHERE id < 20",
                "DELETE FROM t WHERE id BETWEEN 20 AND 29",
                "UPDATE t SET id = 2000 WHERE id = 50",
                "UPDATE two SET a = 'later'",
                "UPDATE large SET n = n + 1",
            )

        found = capture.verified(once(write))
    assert found.is_equal and [each.rows for each in found.tables] == [1, ROWS, 1]
    found = capture.verified(once(lambda: database.run("DELETE FROM two")))
    assert found.is_equal and [each.rows for each in found.tables] == [1, ROWS - 10, 1]


def test_rows_that_changed_unseen_are_found(capture, database):
    publication = f"headrace_{capture.spec.name}"
    database.run(
        f"ALTER PUBLICATION {publication} DROP TABLE t",
        "UPDATE t SET n = n + 1 WHERE id = 3",
        "DELETE FROM t WHERE id = 4",
        "INSERT INTO t (id) VALUES (5000)",
        f"ALTER PUBLICATION {publication} ADD TABLE t",
    )
    found = capture.verified(
        once(lambda: database.run("UPDATE two SET v = NULL")), tables=["t", "public.two"]
    )
    assert kinds(found) == {'{"id":3}': "different", '{"id":4}': "extra", '{"id":5000}': "missing"}


@pytest.mark.slow
def test_tables_at_rest_are_compared_and_one_that_is_paused_says_so(capture, database):
    assert capture.verified().is_equal
    capture.catalog.pause(capture.spec.name)
    database.run("DELETE FROM t WHERE id = 1")
    with pytest.raises(Exception, match="and it is paused: `headrace capture resume") as refused:
        capture.verified()
    assert "postgres:" not in str(refused.value)
