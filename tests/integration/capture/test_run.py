"""The loop of a capture, on a database in memory that is the reference for all sources."""

import logging
import random
import secrets
from dataclasses import replace
from itertools import pairwise

import orjson
import pytest
from tests.integration.capture.conftest import in_a_thread, running, wait_until
from tests.integration.capture.memory_source import MemoryDatabase, MemorySource, encoded
from tests.integration.capture.reading import by_key, folded, read_topic

from headrace.capture import CaptureRun, CaptureWriter, Lag, Transaction
from headrace.client import LATEST, Connection, RawFetcher
from headrace.errors import FencedError

TABLE, OTHER = "main.customers", "main.orders"


def row(key: int, name: str) -> dict:
    return {"id": key, "name": name}


def streams(run: CaptureRun) -> bool:
    return run.status.state == "streaming" and run.status.lag.transactions == 0


def as_topic(data: MemoryDatabase, table: str) -> dict:
    return {encoded({"id": key}): dict(each) for key, each in data.tables[table].items()}


def test_rows_from_before_come_as_a_snapshot_and_later_ones_as_changes(bootstrap):
    data = MemoryDatabase(TABLE)
    data.commit((TABLE, 1, row(1, "Ann")))
    with running(bootstrap, "first", lambda: MemorySource(data)) as run:
        wait_until(lambda: streams(run))
        data.commit((TABLE, 1, row(1, "Anna")), (TABLE, 2, row(2, "Bo")))
        data.commit((TABLE, 2, None))
        wait_until(lambda: run.status.changes == 3)
    values = by_key(read_topic(bootstrap, "first.main.customers"))
    first = values[b'{"id":1}']
    assert [each["op"] for each in first] == ["r", "u"]
    assert (first[1]["before"], first[1]["after"]) == (row(1, "Ann"), row(1, "Anna"))
    assert first[1]["transaction"] == {"id": "2", "total_order": 1, "data_collection_order": 1}
    assert first[1]["source"].items() >= {"table": "customers", "schema": "main", "ts_ms": 2000}.items()
    assert [each and each["op"] for each in values[b'{"id":2}']] == ["c", "d", None]


def test_each_transaction_ends_with_a_cut_that_names_every_partition(bootstrap):
    data = MemoryDatabase(TABLE, OTHER)
    with running(bootstrap, "cuts", lambda: MemorySource(data)) as run:
        wait_until(lambda: streams(run))
        for each in range(20):
            data.commit((TABLE, each, row(each, "x")), (OTHER, each, row(each, "y")))
        wait_until(lambda: run.status.changes == 40)
    ends = [each.value for each in read_topic(bootstrap, "cuts.transaction")]
    assert sum(each["event_count"] for each in ends) == 40
    assert ends[-1]["status"] == "END" and ends[-1]["id"] == "20"
    topics = ("cuts.main.customers", "cuts.main.orders")
    for topic in topics:
        lasts = {str(each.partition): each.offset + 1 for each in read_topic(bootstrap, topic)}
        assert ends[-1]["offsets"][topic] == lasts
    for earlier, later in pairwise(ends):
        for topic, partitions in earlier["offsets"].items():
            assert all(later["offsets"][topic][each] >= next_ for each, next_ in partitions.items())


def test_a_change_that_comes_while_a_chunk_is_read_wins_over_its_row(bootstrap):
    data, numbers = MemoryDatabase(TABLE), random.Random(4)
    data.commit(*((TABLE, each, row(each, "old")) for each in range(200)))

    def meanwhile() -> None:
        for _ in range(5):
            key = numbers.randrange(220)
            data.commit((TABLE, key, numbers.choice([None, row(key, f"new {numbers.random()}")])))

    with running(bootstrap, "meanwhile", lambda: MemorySource(data, meanwhile), chunk_rows=7) as run:
        wait_until(lambda: streams(run))
    assert folded(read_topic(bootstrap, "meanwhile.main.customers")) == as_topic(data, TABLE)
    assert run.status.tables[TABLE].phase == "done"


def test_a_capture_goes_on_where_the_last_one_stopped(bootstrap):
    data = MemoryDatabase(TABLE)
    data.commit(*((TABLE, each, row(each, "old")) for each in range(30)))
    for number in range(4):
        source = MemorySource(data)
        with running(bootstrap, "goes-on", lambda: source, chunk_rows=10) as run:  # noqa: B023
            wait_until(lambda: run.status.state != "starting")
        data.commit((TABLE, number, row(number, f"new {number}")))
    with running(bootstrap, "goes-on", lambda: MemorySource(data), chunk_rows=10) as run:
        wait_until(lambda: streams(run))
    records = read_topic(bootstrap, "goes-on.main.customers")
    assert folded(records) == as_topic(data, TABLE)
    told = [each.value["after"] for each in records]
    assert len(told) == len({orjson.dumps(each) for each in told}), "a row was told twice"


def test_a_database_that_is_down_is_waited_for(bootstrap):
    data = MemoryDatabase(TABLE)
    data.is_down = True
    with running(bootstrap, "down", lambda: MemorySource(data)) as run:
        wait_until(lambda: run.status.state == "reconnecting")
        assert run.status.error == "the database is down"
        data.is_down = False
        wait_until(lambda: streams(run))
        data.commit((TABLE, 1, row(1, "Ann")))
        wait_until(lambda: run.status.changes == 1)
        assert run.status.error is None, "it has passed"


def test_a_truncate_deletes_every_row_that_the_topic_has_at_that_point(bootstrap):
    """Those of the snapshot, of earlier transactions, and of its own; not those that come behind it."""
    data = MemoryDatabase(TABLE, OTHER)
    data.commit(*((TABLE, each, row(each, "old")) for each in range(1500)), (OTHER, 1, row(1, "pen")))
    with running(bootstrap, "truncated", lambda: MemorySource(data)) as run:
        wait_until(lambda: streams(run))
    data.commit((TABLE, 5, None), (TABLE, 2000, row(2000, "earlier in the same batch")))
    data.commit((TABLE, 2001, row(2001, "x")), (TABLE, None, None), (TABLE, 7, row(7, "new")))
    data.commit((TABLE, None, None), (TABLE, None, None), (TABLE, 8, row(8, "newer")))
    with running(bootstrap, "truncated", lambda: MemorySource(data)) as run:
        wait_until(lambda: streams(run) and run.status.changes > 1500)
    records = read_topic(bootstrap, "truncated.main.customers")
    assert folded(records) == as_topic(data, TABLE) == {b'{"id":8}': row(8, "newer")}
    values = by_key(records)
    assert [each and each["op"] for each in values[b'{"id":2001}']] == ["c", "d", None]
    assert [each and each["op"] for each in values[b'{"id":5}']] == ["r", "d", None], "it was gone already"
    assert [each and each["op"] for each in values[b'{"id":7}']] == ["r", "d", None, "c", "d", None]
    assert values[b'{"id":7}'][1]["before"] == {"id": 7}
    assert len(read_topic(bootstrap, "truncated.main.orders")) == 1
    ends = [each.value for each in read_topic(bootstrap, "truncated.transaction")]
    assert sum(each["event_count"] for each in ends) == run.status.changes


def test_a_truncate_while_rows_are_read_again_leaves_none_behind(bootstrap):
    data = MemoryDatabase(TABLE)
    data.commit(*((TABLE, each, row(each, "old")) for each in range(50)))
    chunks = []

    def meanwhile() -> None:
        chunks.append(1)
        if len(chunks) in (3, 7):
            data.commit((TABLE, len(chunks), row(len(chunks), "x")), (TABLE, None, None))
            data.commit(*((TABLE, each, row(each, "new")) for each in range(40, 70, 3)))

    with running(bootstrap, "emptied", lambda: MemorySource(data, meanwhile), chunk_rows=7) as run:
        wait_until(lambda: streams(run))
        assert folded(read_topic(bootstrap, "emptied.main.customers")) == as_topic(data, TABLE)
        before = len(chunks)
        data.tables[TABLE].pop(40)  # unnoticed by the source
        run.resnapshot([TABLE])
        wait_until(
            lambda: streams(run) and len(chunks) > before + 2 and run.status.tables[TABLE].phase == "done"
        )
    assert before < 7 <= len(chunks), "the second truncate never came"
    assert folded(read_topic(bootstrap, "emptied.main.customers")) == as_topic(data, TABLE)


def test_another_database_stops_it_until_a_new_snapshot_makes_topics_right(bootstrap):
    data = MemoryDatabase(TABLE)
    data.commit((TABLE, 1, row(1, "Ann")), (TABLE, 2, row(2, "Bo")))
    with running(bootstrap, "replaced", lambda: MemorySource(data)) as run:
        wait_until(lambda: streams(run))
    other = MemoryDatabase(TABLE, identity="two")
    other.commit((TABLE, 2, row(2, "Bob")), (TABLE, 3, row(3, "Cy")))
    with running(bootstrap, "replaced", lambda: MemorySource(other)) as run:
        wait_until(lambda: run.status.state == "stopped")
        assert "another database" in (run.status.error or "")
        run.resnapshot()
        wait_until(lambda: streams(run))
    assert folded(read_topic(bootstrap, "replaced.main.customers")) == as_topic(other, TABLE)


def test_a_table_that_is_gone_at_a_start_is_reported_before_it_is_forgotten(bootstrap):
    data = MemoryDatabase(TABLE, OTHER)
    with running(bootstrap, "gone", lambda: MemorySource(data), takes_all=True) as run:
        wait_until(lambda: streams(run))
    del data.tables[OTHER]
    for resumed in (False, True):
        with running(bootstrap, "gone", lambda: MemorySource(data), takes_all=True) as run:
            wait_until(lambda: run.status.state == "stopped")
            assert "main.orders is gone" in run.status.error and "capture resume" in run.status.error
            if resumed:
                run.resume()
                wait_until(lambda: streams(run))
    with running(bootstrap, "gone", lambda: MemorySource(data), takes_all=True) as run:
        wait_until(lambda: streams(run))
        assert set(run.status.tables) == {TABLE}


def test_one_table_is_read_again_while_the_other_goes_on(bootstrap):
    data = MemoryDatabase(TABLE, OTHER)
    data.commit((TABLE, 1, row(1, "Ann")), (OTHER, 1, row(1, "pen")))
    with running(bootstrap, "again", lambda: MemorySource(data)) as run:
        wait_until(lambda: streams(run))
        data.tables[TABLE].clear()  # unnoticed by the source
        data.tables[TABLE][5] = row(5, "Eve")
        run.resnapshot([TABLE])
        wait_until(lambda: folded(read_topic(bootstrap, "again.main.customers")) == as_topic(data, TABLE))
        wait_until(lambda: streams(run))
    assert [each.value["op"] for each in read_topic(bootstrap, "again.main.orders")] == ["r"]


def test_pausing_holds_changes_back_and_resuming_brings_them(bootstrap):
    data = MemoryDatabase(TABLE)
    with running(bootstrap, "pausing", lambda: MemorySource(data)) as run:
        wait_until(lambda: streams(run))
        run.pause()
        wait_until(lambda: run.status.state == "paused")
        data.commit((TABLE, 1, row(1, "Ann")))
        assert read_topic(bootstrap, "pausing.main.customers") == []
        run.resume()
        wait_until(lambda: run.status.changes == 1)


def test_nothing_is_said_of_the_lag_while_nobody_looks(bootstrap):
    data = MemoryDatabase(TABLE)
    with running(bootstrap, "unknown-lag", lambda: MemorySource(data)) as run:
        wait_until(lambda: streams(run))
        run.pause()
        wait_until(lambda: run.status.state == "paused")
        assert run.status.lag == Lag()


def test_changes_of_a_table_that_was_taken_out_of_a_capture_are_left_out(bootstrap):
    class Narrower(MemorySource):
        def schemas(self):
            return {name: each for name, each in super().schemas().items() if name == TABLE}

    data = MemoryDatabase(TABLE, OTHER)
    with running(bootstrap, "narrower", lambda: Narrower(data)) as run:
        wait_until(lambda: streams(run))
        data.commit((OTHER, 1, row(1, "pen")), (TABLE, 1, row(1, "Ann")))
        wait_until(lambda: run.status.changes == 1)
    assert folded(read_topic(bootstrap, "narrower.main.customers")) == as_topic(data, TABLE)


def test_a_second_run_of_a_capture_fences_the_first(bootstrap):
    data = MemoryDatabase(TABLE)
    with running(bootstrap, "fenced", lambda: MemorySource(data)) as first:
        wait_until(lambda: streams(first))
        source = MemorySource(data)
        with running(bootstrap, "fenced", lambda: source) as second:
            wait_until(lambda: streams(second))
            with pytest.raises(FencedError):
                first._write([Transaction(id="9", position={"index": 0}, committed_us=1, changes=[])])


def test_a_source_is_told_what_the_log_has(bootstrap):
    data = MemoryDatabase(TABLE)
    source = MemorySource(data)
    with running(bootstrap, "told", lambda: source) as run:
        wait_until(lambda: streams(run))
        data.commit((TABLE, 1, row(1, "Ann")))
        wait_until(lambda: source.acknowledged[-1:] == [1])
    assert len(read_topic(bootstrap, "told.main.customers")) == 1


class Delayed(MemorySource):
    """The database's first transactions take longer to read than those of the log may last.

    `timeouts_ms` has the time-out of each attempt, and then that of all others.
    """

    def __init__(self, data: MemoryDatabase, bootstrap: str, topic: str, timeouts_ms: list[int]) -> None:
        super().__init__(data)
        self._bootstrap, self._topic, self._timeouts_ms = bootstrap, topic, timeouts_ms

    def transactions(self, wait_s):
        for each in super().transactions(wait_s):
            is_slow = len(self._timeouts_ms) > 1
            yield replace(each, changes=self._slowly(each.changes)) if is_slow else each

    def _slowly(self, changes):
        del self._timeouts_ms[0]
        with RawFetcher(Connection(bootstrap_servers=self._bootstrap)) as fetcher:
            before = sum(fetcher.offsets(self._topic, LATEST).values())
            yield from changes
            wait_until(lambda: sum(fetcher.offsets(self._topic, LATEST).values()) > before)


LARGE = {key: row(key, secrets.token_hex(600_000)) for key in range(4)}  # sent before its transaction ends


def delayed(bootstrap: str, name: str, timeouts_ms: list[int]) -> tuple[MemoryDatabase, CaptureRun]:
    data, connection = MemoryDatabase(TABLE), Connection(bootstrap_servers=bootstrap)
    writer = CaptureWriter(connection, name, partitions=1, timeouts_ms=timeouts_ms)
    topic = f"{name}.main.customers"
    return data, CaptureRun(name, lambda: Delayed(data, bootstrap, topic, timeouts_ms), writer)


def test_a_transaction_that_took_too_long_is_written_again(bootstrap, caplog):
    caplog.set_level(logging.INFO, "headrace")
    data, run = delayed(bootstrap, "too-long", [2_000, 60_000])
    with in_a_thread(run):
        wait_until(lambda: streams(run))
        data.commit(*((TABLE, key, each) for key, each in LARGE.items()))
        wait_until(lambda: run.status.changes == len(LARGE))
    assert "longer than 2 s" in caplog.text and run.status.error is None
    assert folded(read_topic(bootstrap, "too-long.main.customers")) == as_topic(data, TABLE)
    assert run.status.reconnects == 1


def test_a_transaction_that_never_fits_stops_the_capture_with_the_setting_to_change(bootstrap):
    data, run = delayed(bootstrap, "never-fits", [2_000, 2_000, 60_000])
    with in_a_thread(run):
        wait_until(lambda: streams(run))
        data.commit(*((TABLE, key, each) for key, each in LARGE.items()))
        wait_until(lambda: run.status.state == "stopped")
        assert "raise transaction_max_timeout_ms" in (run.status.error or "")
        assert "headrace capture resume never-fits" in (run.status.error or "")
        run.resume()
        wait_until(lambda: run.status.changes == len(LARGE))
    assert folded(read_topic(bootstrap, "never-fits.main.customers")) == as_topic(data, TABLE)
