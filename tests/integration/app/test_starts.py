"""Streams that do not start at the earliest: one application, and what is told, counted and proved of it."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from app_runs import (
    BASE_MS,
    event,
    kept_running,
    log_ends,
    new_topic,
    options,
    reflected,
    seconds_of,
    send,
    wait_until,
)
from forged_rows import put_rows
from tests.integration.console.http_client import ask
from tests.integration.prometheus_text import parse
from topics import add_partitions, create_topic, delete_records

from headrace.app.loading import load_app
from headrace.app.query.checkpoint.manifest import Manifest
from headrace.app.query.sinks.counters import READ
from headrace.app.status.status import read_status
from headrace.app.verify.command import verified
from headrace.cli.main import run
from headrace.client import GroupOffsets, declare_watermark, producer
from headrace.views import open_store

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]

APPLICATION = """
from headrace import App, agg, tumbling

app = App("{name}")


def count(view, **settings):
    events = app.stream("{name}-" + view, schema="place string, amount double, at long", event_time="at",
                        lateness="1 second", idle_after="1 hour", **settings)

    @app.view(name=view)
    def counts():
        rows = events.where("place <> 'nobody'") if view == "gaps" else events
        return rows.window(tumbling("10 seconds"), by="place").agg(n=agg.count(), total=agg.sum("amount"))


count("gaps", start="0:0", on_gap="skip")
count("latest", start="latest")
count("time", start="{time}")
count("offsets", start="0:2")
"""
STARTS = ("latest", "time", "offsets")
CLOSING = event(1000)


def a(second):
    return event(second, "a")


def b(second):
    return event(second, "b")


@pytest.fixture
def name():
    return new_topic()


@pytest.fixture
def file(name, tmp_path):
    time = datetime.fromtimestamp((BASE_MS + 60_000) / 1000, UTC).isoformat()
    path = tmp_path / "app.py"
    path.write_text(APPLICATION.format(name=name, time=time))
    return path


def fill(log, name):
    """What is on the log before the application runs; how many offsets of each topic it does not read."""
    for view in STARTS:
        create_topic(log, 2, f"{name}-{view}")
    send(log, f"{name}-latest", [a(1), a(2), b(3)])
    send(log, f"{name}-latest", [a(4)], 1)
    send(log, f"{name}-time", [a(1), a(2)], timestamp=BASE_MS)
    send(log, f"{name}-time", [a(11), b(12)], timestamp=BASE_MS + 60_000)
    send(log, f"{name}-time", [a(3)], 1, timestamp=BASE_MS)
    send(log, f"{name}-offsets", [a(1), a(2), a(11), b(12)])
    send(log, f"{name}-offsets", [a(13)], 1)
    gaps = create_topic(log, 1, f"{name}-gaps")
    in_time, late, others = [a(second / 10) for second in range(30)], [a(5), b(6)] * 3, [event(7, "nobody")]
    send(log, gaps, [*in_time, a(100), *late, *others, b"{no JSON"])
    client = producer(log)
    declare_watermark(client, gaps, BASE_MS + 200_000, partitions=[0])
    assert client.flush(60) == 0
    delete_records(log, gaps, 3)
    return {"latest": 4, "time": 3, "offsets": 2, "gaps": 3}


def send_on(log, name):
    """With this, each of the three views has the same of its stream: what stands from second 11 on."""
    send(log, f"{name}-latest", [a(11), b(12), CLOSING])
    for view in ("time", "offsets"):
        send(log, f"{name}-{view}", [CLOSING])
    for view, values in (("latest", [a(13)]), ("time", [a(13)]), ("offsets", [])):
        send(log, f"{name}-{view}", [*values, CLOSING], 1)


def ends_of(log, name):
    return {view: log_ends(log, f"{name}-{view}") for view in (*STARTS, "gaps")}


def committed(log, app, name, view):
    """What the stream's consumer group has committed."""
    spec = app.streams[f"{name}-{view}"].spec
    with GroupOffsets(log, spec.group) as group:
        found = group.fetch(spec.topic, list(log_ends(log, spec.topic)))
    return {partition: each.offset for partition, each in found.items()}


def outcomes(url):
    """What the metrics say of every view's events."""
    samples = parse(ask(url, "GET", "/metrics").body.decode())["headrace_view_events_total"]["samples"]
    found = {}
    for (_, labels), count in samples.items():
        said = dict(labels)
        found.setdefault(said["view"], {})[said["outcome"]] = count
    return found


def test_a_query_is_counted_and_proved_from_where_it_began(spark, our_log, name, file, tmp_path, capsys):
    data, app, said = tmp_path / "data", load_app(file), []
    store = f"sqlite:///{data}/views.db"
    unread = fill(our_log, name)
    with kept_running(app, our_log, data, on_message=said.append, http="127.0.0.1:0") as started:
        send_on(our_log, name)  # at once: where a query begins is settled, though it has read nothing yet

        def caught_up():
            ends = ends_of(our_log, name)
            return all(
                reflected(store, view).offsets.get(f"{name}-{view}") == each for view, each in ends.items()
            )

        def results(view):
            found = seconds_of(store, view)
            return [found.get((place, 10)) for place in "ab"]

        wait_until(started, lambda: caught_up() and all(results(view) == [2, 1] for view in STARTS))
        # A partition that is added is read from its beginning, wherever the stream started.
        for view in STARTS:
            add_partitions(our_log, f"{name}-{view}", 3)
            send(our_log, f"{name}-{view}", [a(14), CLOSING], 2, timestamp=BASE_MS)
        wait_until(started, lambda: caught_up() and all(results(view) == [3, 1] for view in STARTS))

        # The counters have every record that is on the log from there on, once; and what retention took.
        ends, found = ends_of(our_log, name), outcomes(started.console.url.rstrip("/"))
        for view, each in ends.items():
            read = sum(found[view].get(word, 0) for word in READ)
            assert read == sum(each.values()) - unread[view], found[view]
        assert found["gaps"] == {
            "on_time": 28,
            "dropped": 6,
            "filtered": 1,
            "dead": 1,
            "declared": 1,
            "skipped": 3,
        }
        for view, each in ends.items():
            wait_until(started, lambda view=view, each=each: committed(our_log, app, name, view) == each)

        # More than one in twenty is late, which is told.
        wait_until(started, lambda: [each for each in read_status(data).alerts if each["kind"] == "late"])
    assert any(line.startswith("alert: 17.6% of the records of gaps are late") for line in said)

    # The log goes on; what the views show is still proved from where they began.
    for view in STARTS:
        send(our_log, f"{name}-{view}", [a(15), a(2000)])
    require_that_a_view_that_fails_keeps_no_other_from_being_verified(file, data, our_log, name, capsys)
    require_that_verify_finds_differences(file, data, our_log, capsys)
    require_that_another_querys_beginning_is_not_taken(app, our_log, data, name)


def require_that_a_view_that_fails_keeps_no_other_from_being_verified(file, data, log, name, capsys):
    """The log no longer has what one was made of, another's table is gone: told why, and exit code 1."""
    with closing(sqlite3.connect(data / "views.db", isolation_level=None)) as views:
        views.execute("ALTER TABLE time RENAME TO hidden")
        capsys.readouterr()
        arguments = ["--data", str(data), "--bootstrap", log.bootstrap_servers, "--json"]
        code, printed = run(["verify", str(file), *arguments]), capsys.readouterr().out
        views.execute("ALTER TABLE hidden RENAME TO time")
    found = {each["view"]: each for each in json.loads(printed)["views"]}
    assert (code, list(found)) == (1, ["gaps", "latest", "time", "offsets"])
    assert f"no longer has {name}-gaps-0 before 3" in found["gaps"]["failure"]
    assert "table 'time' is damaged: it is missing" in found["time"]["failure"]
    assert [found[view]["equal"] for view in found] == [False, True, False, True]
    for view in ("latest", "offsets"):
        assert (found[view]["failure"], found[view]["rows"], found[view]["different"]) == (None, 2, 0)


def require_that_verify_finds_differences(file, data, log, capsys):
    """A row that is wrong, one that is missing and one too many: found, named, and exit code 1."""

    def verify():
        arguments = ["--data", str(data), "--bootstrap", log.bootstrap_servers]
        capsys.readouterr()
        return run(["verify", str(file), "latest", *arguments]), capsys.readouterr().out

    store = f"sqlite:///{data}/views.db"
    with closing(open_store(store)) as views:
        right = views.read("latest")
    a, b = (next(each for each in right.to_pylist() if each["place"] == place) for place in "ab")
    wrong = [a | {"total": a["total"] + 1}, a | {"place": "c"}]
    put_rows(store, "latest", rows_like(right, wrong), removed=rows_like(right, [b]))
    code, printed = verify()
    assert code == 1
    assert "latest: DIFFERENT" in printed and "3 rows differ" in printed
    lines = {place: line for line in printed.splitlines() for place in "abc" if f"'{place}'" in line}
    assert all(line.startswith("latest {'place': ") for line in lines.values())
    assert "served {" in lines["a"] and "recomputed {" in lines["a"]
    assert "served None" in lines["b"] and "recomputed None" in lines["c"]
    assert "gaps" not in printed and "offsets" not in printed, "the one view that was named"
    put_rows(store, "latest", right, removed=rows_like(right, wrong[1:]))
    code, printed = verify()
    assert code == 0 and "latest: equal" in printed


def rows_like(rows, chosen):
    return pa.Table.from_pylist(chosen, schema=rows.schema)


def require_that_another_querys_beginning_is_not_taken(app, log, data, name):
    """As while a rebuild is under way: what is served was made by a query that began elsewhere."""
    folder = data / "queries" / f"{name}-latest"
    replace(Manifest.read(folder), query_id="another").write(folder)
    (verdict,) = verified(app, options(log, data), "latest")
    assert not verdict.is_equal
    assert "where the query began that made latest as it is served is not known" in verdict.failure
