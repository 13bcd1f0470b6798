"""What ends an application for good, and that its end leaves nothing behind."""

import contextlib
import json
import re

import pytest
from app_runs import (
    TIMEOUT_S,
    catch_up,
    counting,
    event,
    headrace_run,
    kept_running,
    log_ends,
    new_topic,
    reflected,
    require_equal,
    send,
    wait_until,
)
from topics import create_topic, delete_records

from headrace import App
from headrace.client import LATEST, RawFetcher
from headrace.errors import ConfigError, FencedError, RequestError
from headrace.records import decode_columns

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]


def test_the_older_of_two_drivers_on_one_store_is_fenced_and_says_so(spark, our_log, tmp_path):
    topic, store = new_topic(), f"sqlite:///{tmp_path}/views.db"
    app = counting(topic, store=store, idle_after="1 second")
    with kept_running(app, our_log, tmp_path / "older") as older:
        with (
            pytest.raises(ConfigError, match=r"already running on .*; stop it, or choose another --data"),
            kept_running(app, our_log, tmp_path / "older"),
        ):
            pass
        send(our_log, topic, [event(1), event(30)])
        wait_until(older, lambda: reflected(store).offsets.get(topic, {}).get(0) == 2)
        with kept_running(counting(topic, store=store), our_log, tmp_path / "newer") as newer:
            send(our_log, topic, [event(2), event(50)], 1)
            with pytest.raises(FencedError, match=r"started in .*newer \(process .*so this run stops"):
                older.wait(TIMEOUT_S)
            ends = log_ends(our_log, topic)
            wait_until(newer, lambda: reflected(store).offsets.get(topic) == ends)
            require_equal(spark, app, our_log, store)


def test_of_two_runs_on_one_log_the_newer_alone_writes_and_both_say_so(our_log, tmp_path):
    """Folders and stores of their own keep them apart nowhere but on the log."""
    topic, told = new_topic(), []
    copies, name = f"{topic}-copies", f"app-{topic}"

    def app(folder):
        return counting(topic, store=f"sqlite:///{tmp_path}/{folder}.db", copies=copies, start="latest")

    create_topic(our_log, 2, topic)
    with kept_running(app("older"), our_log, tmp_path / "older") as older:
        send(our_log, topic, [event(1), b"{no JSON"])
        wait_until(older, lambda: len(committed_values(our_log, f"{name}.dead")) == 1)
        older.stop()  # it watches over nothing any more, but its query goes on
        newer = kept_running(app("newer"), our_log, tmp_path / "newer", on_message=told.append)
        with newer as started:
            assert any("takes over" in each and str(tmp_path / "older") in each for each in told), told
            send(our_log, topic, [b"{no JSON either", event(2)])
            wait_until(started, lambda: len(committed_values(our_log, copies)) >= 2)
            older._stopping.clear()
            with pytest.raises(FencedError, match="so this run stops"):
                older.wait(TIMEOUT_S)
            wait_until(started, lambda: len(committed_values(our_log, f"{name}.dead")) >= 2)
            assert committed_values(our_log, f"{name}.dead") == [b"{no JSON", b"{no JSON either"]
            assert [json.loads(each)["at"] for each in committed_values(our_log, copies)] == [
                event(1)["at"],
                event(2)["at"],
            ]


def committed_values(log, topic):
    with RawFetcher(log) as fetcher, contextlib.suppress(RequestError):
        values = []
        for partition, end in fetcher.offsets(topic, LATEST).items():
            for run in fetcher.fetch(topic, partition, 0, end):
                values += decode_columns(run, columns=("value",))["value"].to_pylist()
        return values
    return []


def test_a_query_that_fails_for_good_ends_the_run_with_one_line(our_log, tmp_path):
    """Retention has taken what comes next: nothing but a decision of the user's can help.

    It fits the checkpoint that this process has made, with an aggregate of the user's own.
    """
    topic = new_topic()
    app = counting(topic, store=f"sqlite:///{tmp_path}/views.db")
    create_topic(our_log, 2, topic)
    send(our_log, topic, [event(1)])
    catch_up(app, our_log, tmp_path / "data")
    send(our_log, topic, [event(2), event(3)])
    delete_records(our_log, topic, 2)
    process = headrace_run(tmp_path, topic, "--bootstrap", our_log.bootstrap_servers)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, out + err
    lines = [line for line in err.splitlines() if line]
    assert len(lines) == 1, err
    assert re.search(rf"the query on {topic} failed: .*{topic}", lines[0])


def test_an_exception_of_a_user_s_function_is_told_with_its_line(spark, our_log, tmp_path):
    from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know
    from pyspark.sql.types import DoubleType

    def clean(amount):
        raise ValueError("too hot")

    line = clean.__code__.co_firstlineno + 1
    app = App(f"app-{new_topic()}", store=f"sqlite:///{tmp_path}/views.db")
    events = app.stream(new_topic(), schema="amount double")
    app.view(name="cleaned")(lambda: events.with_columns(y=F.udf(clean, DoubleType())("amount")))
    with kept_running(app, our_log, tmp_path / "data", max_restarts=0) as started:
        send(our_log, events.spec.topic, [{"amount": 1.0}])
        with pytest.raises(
            RequestError, match=rf"failed: .*test_failures\.py, line {line}: ValueError: too hot$"
        ):
            started.wait(TIMEOUT_S)
