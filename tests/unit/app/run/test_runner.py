"""When a query that failed is restarted, and what waits for the first batch."""

import time

import pytest

from headrace.app.options import RunOptions
from headrace.app.run.alert_monitor import AlertMonitor
from headrace.app.run.runner import Running, RunningQuery
from headrace.app.status.status import StatusFile
from headrace.client import Connection
from headrace.errors import RequestError


def test_tries_start_over_once_a_restart_has_made_progress_and_pauses_grow_until_then():
    started = []
    query = RunningQuery("orders", lambda: started.append(1), None)
    pauses = []
    for batch in (7, 7, 7, 8, 8):
        query.note_failure(batch)
        pauses.append(query.pause_s)
        query.restart()
    assert pauses == [0, 2, 4, 0, 2]
    assert (query.tries, query.restarts, len(started)) == (2, 5, 5)


class OneBatchLater:
    """What Spark says of a query: nothing at first, then how long its first batch took."""

    isActive = True  # noqa: N815 - Spark's name
    lastProgress = None  # noqa: N815


def test_pauses_between_restarts_grow_to_a_minute():
    query = RunningQuery("orders", lambda: None, None, tries=5)
    assert query.pause_s == 32
    query.tries = 500
    assert query.pause_s == 60


class FailedQuery:
    """What Spark says of a query that has failed."""

    isActive = False  # noqa: N815 - Spark's name

    def __init__(self, kind):
        self.kind = kind

    def exception(self):
        return Exception(f"x\n{self.kind}: nobody answers")


def failing(tmp_path, kind, **options):
    """A run of one query that fails whenever it is started, and its monitor of alerts."""
    monitor = AlertMonitor([], Connection(bootstrap_servers="127.0.0.1:1"))
    unused = ("plan", "connection", "log", "launcher", "catch_up", "ownership", "commands")
    given = RunOptions(data=tmp_path, max_restarts=3, **options)
    fields = {**dict.fromkeys(unused), "status_file": StatusFile(tmp_path), "alert_monitor": monitor}
    running = Running(**fields, options=given, say=lambda _: None)
    failed = FailedQuery(kind)
    running.queries["orders"] = RunningQuery("orders", lambda: failed, failed)
    return running, monitor


def fail(running, times):
    query = running.queries["orders"]
    for _ in range(times):
        running._is_alive(query)
        if query.restart_at is not None:
            query.restart_at = 0.0  # the pause is over
    return query


@pytest.mark.parametrize("kind", ["headrace.errors.RetriableError", "ValueError"])
def test_an_outage_is_waited_for_however_long_it_takes_and_other_failures_are_not(tmp_path, kind):
    running, monitor = failing(tmp_path, kind)
    if kind == "ValueError":
        with pytest.raises(RequestError, match="nobody answers"):
            fail(running, 20)
        return
    query = fail(running, 40)
    assert query.restarts > 15 and query.pause_s == 60
    now = time.time()
    monitor._next_look = now + 1_000
    assert monitor.look(running.status_file.status, now) == []
    (line,) = monitor.look(running.status_file.status, now + 45)
    assert "the query on orders has stood still for 45 seconds" in line
    assert monitor.active.active["outage orders"].detail == "nobody answers"
    monitor.recovered("orders")
    (line,) = monitor.look(running.status_file.status, now + 46)
    assert line.startswith("alert over")


def test_a_run_that_is_to_end_does_not_wait_for_ever(tmp_path):
    running, _ = failing(tmp_path, "headrace.errors.RetriableError", until_caught_up=True)
    with pytest.raises(RequestError, match="nobody answers"):
        fail(running, 20)


def test_what_would_take_processors_from_the_first_results_begins_after_them_and_once(tmp_path):
    spark_query, begun = OneBatchLater(), []
    monitor = AlertMonitor([], Connection(bootstrap_servers="127.0.0.1:1"))
    status_file = StatusFile(tmp_path)
    unused = ("plan", "connection", "log", "options", "launcher", "catch_up", "ownership", "commands")
    fields = {**dict.fromkeys(unused), "status_file": status_file, "alert_monitor": monitor}
    running = Running(**fields, say=begun.append)
    running.queries["orders"] = RunningQuery("orders", lambda: spark_query, spark_query)
    running.after_first_batch = lambda: begun.append("archive")
    running._note_progress()
    assert begun == []
    spark_query.lastProgress = {"batchDuration": 500}
    for _ in range(2):
        running._progress_at = 0.0
        running._note_progress()
    assert begun == ["archive"]
    status_file.close()
