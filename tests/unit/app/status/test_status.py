"""The status of a running application: what batches make of it, and its file."""

import json
import os
import time
from collections import Counter
from dataclasses import asdict, replace

from headrace.app.status.batch_report import BatchReport
from headrace.app.status.lock import is_running, locked
from headrace.app.status.status import (
    WRITE_INTERVAL_S,
    AppStatus,
    Rebuild,
    StatusFile,
    after_rebuild,
    read_status,
    rebuild_progress,
    records_per_s,
    with_batch,
    with_message,
    with_query,
)

NEW = AppStatus(pid=1, started_at=100.0, updated_at=100.0)


def report(batch_id: int = 0, records: int = 10, watermark_us: int | None = None, **following: int):
    return BatchReport(
        query="orders",
        batch_id=batch_id,
        records=records,
        watermark_us=watermark_us,
        following={int(name[1:]): next_ for name, next_ in following.items()},
        counters={},
        changed={},
    )


def test_batches_add_up_and_a_repeated_one_counts_once():
    status = with_batch(NEW, report(0, 10, 5, p0=10), 101.0)
    status = with_batch(status, report(0, 10, 5, p0=10), 102.0)
    status = with_batch(status, report(1, 7, 3, p1=7), 103.0)
    query = status.query("orders")
    assert (query.state, query.batch_id, query.records, query.batch_records) == ("running", 1, 17, 7)
    assert query.watermark_us == 5, "it never goes back"
    assert query.positions == {"0": 10, "1": 7}
    assert query.recent == ((101.0, 10), (103.0, 7))


def test_a_query_that_is_rebuilt_stays_so_while_batches_come():
    rebuilding = replace(
        NEW, queries={"orders": replace(with_batch(NEW, report(), 1.0).query("orders"), state="rebuilding")}
    )
    assert with_batch(rebuilding, report(1), 102.0).query("orders").state == "rebuilding"


def test_a_rebuild_is_over_when_every_query_has_come_to_where_the_log_ended():
    targets = {"orders": {"0": 100, "1": 100}, "clicks": {}}
    status = replace(NEW, rebuild=Rebuild(began_at=100.0, targets=targets))
    for name in targets:
        status = with_query(status, name, 100.0, state="rebuilding")
    status = after_rebuild(status, 101.0)
    assert (status.query("orders").state, status.query("clicks").state) == ("rebuilding", "running")
    status = after_rebuild(with_batch(status, report(0, 150, p0=100, p1=50), 102.0), 102.0)
    assert status.query("orders").state == "rebuilding"
    assert rebuild_progress(status) == 0.75
    status = after_rebuild(with_batch(status, report(1, 60, p1=110), 103.0), 103.0)
    assert status.query("orders").state == "running"
    assert (status.rebuild.done_at, rebuild_progress(status)) == (103.0, 1.0)
    assert rebuild_progress(NEW) is None


def test_the_rate_is_that_of_the_last_ten_seconds():
    status = with_batch(NEW, report(0, 1000), 100.0)
    for number in range(1, 6):
        status = with_batch(status, report(number, 200), 105.0 + number)
    query = status.query("orders")
    assert records_per_s(query, 110.0) == 100.0
    assert records_per_s(query, 118.0) == 40.0
    assert records_per_s(query, 200.0) == 0.0


def test_only_the_last_messages_are_kept():
    status = NEW
    for number in range(60):
        status = with_message(status, str(number), float(number))
    assert [each.text for each in status.messages] == [str(number) for number in range(10, 60)]


def test_what_was_noted_is_in_the_file_and_reads_back_the_same(tmp_path):
    status_file = StatusFile(tmp_path)
    status_file.batch(report(3, 4, 9, p0=4))
    status_file.message("hello")
    status_file.query("clicks", state="failed", error="a cause")
    status_file.close()
    status = read_status(tmp_path)
    assert status == status_file.status
    assert status.pid == os.getpid()
    assert {name: each.state for name, each in status.queries.items()} == {
        "orders": "stopped",
        "clicks": "failed",
    }


def test_the_file_is_rarely_written_however_often_something_is_noted(tmp_path):
    began = time.monotonic()
    status_file = StatusFile(tmp_path)
    for number in range(1_000):
        status_file.message(str(number))
    status_file.close()
    assert status_file.writes <= 5 + (time.monotonic() - began) / WRITE_INTERVAL_S
    assert read_status(tmp_path).messages[-1].text == "999"


def test_a_missing_or_broken_status_is_none(tmp_path):
    assert read_status(tmp_path) is None
    (tmp_path / "status.json").write_text("{")
    assert read_status(tmp_path) is None
    (tmp_path / "status.json").write_text(json.dumps({"pid": 1}))
    assert read_status(tmp_path) is None


def test_a_status_with_a_flipped_bit_is_none_or_what_it_was(tmp_path):
    status_file = StatusFile(tmp_path)
    status_file.query("orders", state="running", positions={"0": 17})
    status_file.close()
    path, right = tmp_path / "status.json", read_status(tmp_path)
    data = path.read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        assert read_status(tmp_path) in (None, right)


def test_whether_a_driver_runs_is_asked_of_its_lock(tmp_path):
    assert not is_running(tmp_path)
    with locked(tmp_path):
        assert is_running(tmp_path)
    assert not is_running(tmp_path)
    with locked(tmp_path):
        pass


def test_what_became_of_each_input_is_added_up_and_a_repeated_batch_counts_once():
    status = AppStatus(pid=1, started_at=0.0, updated_at=0.0)
    for number, on_time in ((0, 3), (1, 4), (1, 4)):
        inputs = {"joined": {"orders": Counter(on_time=on_time), "customers": Counter(dead=1)}}
        status = with_batch(status, replace(report(number), inputs=inputs), 1.0)
    assert status.query("orders").inputs == {"orders": {"on_time": 7}, "customers": {"dead": 2}}
    assert AppStatus.from_json(json.loads(json.dumps(asdict(status)))) == status
