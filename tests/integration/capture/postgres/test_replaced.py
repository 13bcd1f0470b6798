"""A server that another one takes the place of: a standby after a failover, or an earlier state of itself."""

import pytest
from tests.integration.capture.conftest import running, wait_until
from tests.integration.capture.postgres.conftest import started
from tests.integration.capture.postgres.databases import Database
from tests.integration.capture.postgres.standby import Backup, StandbyProcess
from tests.integration.capture.reading import folded, read_topic

from headrace.capture.postgres import PostgresAddress, PostgresConnection, PostgresSource
from headrace.testing.postgres_process import PASSWORD, find_versions

pytestmark = pytest.mark.xdist_group("postgres")

SYNCHRONIZES_SLOTS = 17


def rows_of(bootstrap: str, topic: str) -> dict[str, dict]:
    return {str(each["id"]): each for each in folded(read_topic(bootstrap, topic)).values()}


class Service:
    """A name that leads to one server or another, as a DNS entry or a proxy does."""

    def __init__(self, server) -> None:
        self.server = server

    def source(self) -> PostgresSource:
        return PostgresSource(PostgresAddress.parse(self.server.url("shop")), PASSWORD, name="test")


def database_of(address: PostgresAddress) -> PostgresConnection:
    return PostgresConnection(address, PASSWORD)


def is_streaming(run) -> bool:
    return run.status.state == "streaming"


def is_stopped(run) -> bool:
    return run.status.state == "stopped"


def test_after_a_failover_without_its_slot_a_capture_stops_and_a_resnapshot_converges(bootstrap):
    """Rows that the standby never got are deleted from the topic, and the new timeline is followed on."""
    with (
        started(15) as primary,
        StandbyProcess(primary) as standby,
        Database(primary, "shop") as database,
    ):
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
        service = Service(primary)
        with running(bootstrap, "failover", service.source) as run:
            wait_until(lambda: is_streaming(run))
            end = database.run("SELECT pg_current_wal_lsn()")[0][0]
            standby.wait_until_it_has(end)
            standby.stop(hard=True)  # it misses what is committed from here on
            database.run("INSERT INTO t VALUES (2, 'lost')")
            wait_until(lambda: "2" in rows_of(bootstrap, "failover.public.t"))
            database.disconnect()
            primary.stop(hard=True)
            standby.start()
            standby.promote()
            service.server = standby
            wait_until(lambda: is_stopped(run), timeout_s=30)
            assert "slot is gone" in (run.status.error or ""), run.status.error
            assert "resnapshot" in (run.status.error or "")
            run.resnapshot()
            wait_until(lambda: is_streaming(run))
            after = PostgresAddress.parse(standby.url("shop"))
            with database_of(after) as admin:
                admin.query("INSERT INTO t VALUES (3, 'new')")
            wait_until(lambda: set(rows_of(bootstrap, "failover.public.t")) == {"1", "3"})
        primary.start()


@pytest.mark.slow
@pytest.mark.skipif(max(find_versions() or [0]) < SYNCHRONIZES_SLOTS, reason="no PostgreSQL 17 or newer here")
def test_after_a_failover_with_its_slot_a_capture_goes_on(bootstrap):
    """Where standbys keep the slot, nothing is read twice and nothing is lost."""
    version = max(find_versions())
    with started(version) as primary, Database(primary, "shop") as database:
        database.run("SELECT pg_create_physical_replication_slot('standby')",
                     "CREATE TABLE t (id int PRIMARY KEY, v text)")  # fmt: skip
        follows = {"sync_replication_slots": "on", "hot_standby_feedback": "on",
                   "primary_slot_name": "standby"}  # fmt: skip
        with StandbyProcess(primary, **follows) as standby:
            service = Service(primary)
            with running(bootstrap, "kept", service.source) as run:
                wait_until(lambda: is_streaming(run))
                for number in range(5):
                    database.run(f"INSERT INTO t VALUES ({number}, 'before')")
                wait_until(lambda: len(rows_of(bootstrap, "kept.public.t")) == 5)
                with database_of(PostgresAddress.parse(standby.url())) as admin:
                    synced = "SELECT 1 FROM pg_replication_slots WHERE synced AND NOT temporary"
                    wait_until(lambda: bool(admin.query(synced)))
                standby.wait_until_it_has(database.run("SELECT pg_current_wal_lsn()")[0][0])
                database.disconnect()
                primary.stop(hard=True)
                standby.promote()
                service.server = standby
                with database_of(PostgresAddress.parse(standby.url("shop"))) as admin:
                    admin.query("INSERT INTO t VALUES (9, 'after')")
                wait_until(lambda: "9" in rows_of(bootstrap, "kept.public.t"))
                assert run.status.error is None
        primary.start()
    ops = [each.value["op"] for each in read_topic(bootstrap, "kept.public.t")]
    assert ops == ["c"] * 6


@pytest.mark.parametrize("overtakes", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_server_that_went_back_to_a_backup_is_noticed(bootstrap, overtakes):
    """Also one with the same cluster, timeline and slot, whose log has come further than what was read."""
    name = f"restored-{overtakes}"
    with started(15) as server, Database(server, "shop") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
        service = Service(server)
        with running(bootstrap, name, service.source) as run:
            wait_until(lambda: is_streaming(run))
            database.run("INSERT INTO t VALUES (2, 'kept')")
            wait_until(lambda: "2" in rows_of(bootstrap, f"{name}.public.t"))
        database.idle_slot()
        database.disconnect()
        server.stop()
        with Backup(server) as backup:
            server.start()
            with running(bootstrap, name, service.source) as run:
                wait_until(lambda: is_streaming(run))
                database.run("INSERT INTO t VALUES (3, 'lost')")
                wait_until(lambda: "3" in rows_of(bootstrap, f"{name}.public.t"))
            read_to = database.end()
            database.disconnect()
            server.stop()
            backup.restore()
        server.start()
        if overtakes:
            while database.end() <= read_to + 100_000:
                database.run("INSERT INTO t SELECT 4, 'other' ON CONFLICT (id) DO UPDATE SET v = 'again'")
        with running(bootstrap, name, service.source) as run:
            wait_until(lambda: is_stopped(run), timeout_s=30)
            wanted = "not the one that was read" if overtakes else "went back to a state before"
            assert wanted in (run.status.error or ""), run.status.error
            run.resume()
            wait_until(lambda: is_stopped(run), timeout_s=30)
            run.resnapshot()
            wait_until(lambda: is_streaming(run))
            wait_until(lambda: rows_of(bootstrap, f"{name}.public.t") == database.rows("t", "id"))
        with running(bootstrap, name, service.source) as run:
            database.run("INSERT INTO t VALUES (5, 'after')")
            wait_until(lambda: "5" in rows_of(bootstrap, f"{name}.public.t"))
