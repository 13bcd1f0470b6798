"""A replica that takes the place of its primary: nothing is lost or doubled, or the capture says what is."""

import contextlib
from collections.abc import Iterator

import pytest
from tests.integration.capture.conftest import running, wait_until
from tests.integration.capture.mysql.conftest import started
from tests.integration.capture.mysql.databases import Database
from tests.integration.capture.mysql.test_capturing import is_streaming, rows_of, table_rows
from tests.integration.capture.reading import by_key, read_topic

from headrace.testing.mysql_process import PASSWORD, USER, MysqlProcess

pytestmark = [pytest.mark.xdist_group("mysql"), pytest.mark.timeout(300)]


class Pair:
    """A primary and its replica; `now` is where the application's address leads."""

    def __init__(self, primary: MysqlProcess, replica: MysqlProcess) -> None:
        self.primary, self.replica = primary, replica
        self.on_primary, self.on_replica = Database(primary, "shop"), Database(replica, "shop")
        self.now = self.on_primary

    def replicate(self) -> None:
        to = (f"MASTER_HOST='127.0.0.1', MASTER_PORT={self.primary.port}, MASTER_USER='{USER}', "
              f"MASTER_PASSWORD='{PASSWORD}', MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos")  # fmt: skip
        with self.on_replica.connect() as admin:
            admin.query(f"CHANGE MASTER TO {to}")
            admin.query("START SLAVE")

    def wait_for_replica(self) -> None:
        """Until the replica has everything that the primary has."""
        end = self.on_primary.run("SELECT @@gtid_binlog_pos")[0][0]
        assert self.on_replica.run(f"SELECT MASTER_GTID_WAIT('{end}', 60)") == [("0",)]

    def stop_replicating(self) -> None:
        self.on_replica.run("STOP SLAVE")

    def fail_over(self) -> None:
        """The primary is gone, and the replica takes writes."""
        self.on_primary.disconnect()
        self.primary.stop(hard=True)
        self.on_replica.run("STOP SLAVE", "RESET SLAVE ALL")
        self.now = self.on_replica


@pytest.fixture
def pair() -> Iterator[Pair]:
    with contextlib.ExitStack() as servers:
        primary = servers.enter_context(started())
        replica = servers.enter_context(started(server_id="2", log_slave_updates="ON"))
        made = Pair(primary, replica)
        made.replicate()
        with made.on_primary:
            made.on_primary.run(
                "CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')"
            )
            made.wait_for_replica()
            yield made
            made.on_replica.disconnect()
            made.now = made.on_replica
            made.primary.start()  # so that the database can be dropped


def ops(bootstrap: str, topic: str) -> dict[bytes | None, list[str | None]]:
    return {
        key: [each and each["op"] for each in values]
        for key, values in by_key(read_topic(bootstrap, topic)).items()
    }


def test_a_capture_goes_on_with_the_replica_that_was_promoted(bootstrap, pair):
    topic = "promoted.shop.t"
    with running(bootstrap, "promoted", lambda: pair.now.source()) as run:
        wait_until(lambda: is_streaming(run, 0))
        pair.on_primary.run("UPDATE t SET v = 'before' WHERE id = 1", "INSERT INTO t VALUES (3, 'c')")
        wait_until(lambda: is_streaming(run, 2))
        pair.on_primary.run("DELETE FROM t WHERE id = 2")
        pair.wait_for_replica()
        pair.fail_over()
        pair.now.run("UPDATE t SET v = 'after' WHERE id = 3", "INSERT INTO t VALUES (4, 'd')")
        wait_until(lambda: is_streaming(run, 5))
        assert rows_of(bootstrap, topic) == table_rows(pair.now)
    assert ops(bootstrap, topic) == {
        b'{"id":1}': ["r", "u"], b'{"id":2}': ["r", "d", None], b'{"id":3}': ["c", "u"], b'{"id":4}': ["c"],
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("writes", [0, 3], ids=["behind", "and then ahead"])
def test_a_replica_that_lacks_what_was_read_stops_the_capture_and_a_resnapshot_converges(
    bootstrap, pair, writes
):
    name = f"lacking-{writes}"
    with running(bootstrap, name, lambda: pair.now.source()) as run:
        wait_until(lambda: is_streaming(run, 0))
        pair.stop_replicating()
        pair.on_primary.run("UPDATE t SET v = 'lost' WHERE id = 1", "INSERT INTO t VALUES (3, 'lost')")
        wait_until(lambda: is_streaming(run, 2))
        pair.fail_over()
        for each in range(writes):
            pair.now.run(f"INSERT INTO t VALUES ({10 + each}, 'after')")
        wait_until(lambda: run.status.state == "stopped")
        assert "resnapshot" in (run.status.error or "")
        run.resnapshot()
        wait_until(lambda: run.status.state == "streaming")
        wait_until(lambda: rows_of(bootstrap, f"{name}.shop.t") == table_rows(pair.now))
