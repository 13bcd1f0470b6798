"""What ends an application for good, and that its end leaves nothing behind."""

import contextlib
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from app_runs import (
    TIMEOUT_S,
    catch_up,
    counting,
    event,
    kept_running,
    log_ends,
    new_topic,
    reflected,
    require_equal,
    send,
    spread,
    wait_until,
)
from topics import create_topic, delete_records

from headrace import App
from headrace.client import LATEST, Connection, RawFetcher
from headrace.errors import ConfigError, FencedError, RequestError
from headrace.records import decode_columns

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

APPLICATION = """
import pyarrow.compute as pc

from headrace import App, agg, tumbling

{spread}

app = App("app-{topic}", store="{store}")
events = app.stream("{topic}", schema="place string, amount double, at long", event_time="at",
                    lateness="1 second", partitions=2)

@app.view
def counts():
    return events.window(tumbling("10 seconds"), by="place").agg(
        n=agg.count(), total=agg.sum("amount"), spread=spread()
    )
"""


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


def descendants(pid):
    return [each.pid for each in psutil.Process(pid).children(recursive=True)]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def headrace_run(tmp_path, topic, *arguments):
    file = tmp_path / "app.py"
    own = inspect.getsource(spread).replace(" -> Any", "")
    file.write_text(APPLICATION.format(topic=topic, store=f"sqlite:///{tmp_path}/views.db", spread=own))
    return subprocess.Popen(
        [sys.executable, "-m", "headrace", "run", str(file), "--data", str(tmp_path / "data"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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


def messages_until(said, beginning):
    """What a run says, up to the message that begins so."""
    for line in said:
        yield (message := line.get("message", ""))
        if message.startswith(beginning):
            return
    raise AssertionError(f"it ended before it said {beginning!r}")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_run_keeps_to_its_limit_and_a_signal_ends_it_and_all_its_processes(tmp_path, number):
    topic = new_topic()
    process = headrace_run(tmp_path, topic, "--json", "--max-records-per-batch", "20")
    assert process.stdout is not None
    said = map(json.loads, process.stdout)
    try:
        (bootstrap,) = [
            each.split()[1] for each in messages_until(said, "running") if each.startswith("log:")
        ]
        send(Connection(bootstrap_servers=bootstrap), topic, [event(second) for second in range(60)])
        taken: list[int] = []
        while sum(taken) < 60:
            taken.append(next(said).get("records", 0))
        assert max(taken) <= 20
        family = descendants(process.pid)
        assert len(family) >= 2, "the log and the JVM"
        for pid in (process.pid, *family):  # to all of them at once, as systemd does
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0 and not err, err
        assert json.loads(out.splitlines()[-1]) == {"message": "stopped"}
    finally:
        process.kill()
    deadline = time.monotonic() + 60
    while left := [pid for pid in family if is_alive(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)  # a process that is not our child can only be looked at
