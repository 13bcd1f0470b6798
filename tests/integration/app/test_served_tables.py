"""Tables that are served: rows, changes and versions over HTTP, on the command line and as DataFrames."""

import contextlib
import json
from datetime import UTC, datetime

import pytest
from app_runs import BASE_MS, catch_up, new_topic
from tests.integration.console.http_client import ask

from headrace import App
from headrace.app.processes.sidecars import ConsoleSidecar
from headrace.cli.main import run
from headrace.client import producer
from headrace.client.topics import TopicSettings, ensure_topics

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]

PLACEHOLDER = "__debezium_unavailable_value"


def moment(second):
    return datetime.fromtimestamp(BASE_MS / 1000 + second, UTC).isoformat().replace("+00:00", "Z")


def change(log, topic, second, op, number, **row):
    """A change of one row as Debezium writes it; a delete has a tombstone behind it."""
    whole = {"id": number, **row}
    value = {
        "op": op,
        "before": whole if op == "d" else None,
        "after": None if op == "d" else whole,
        "source": {"ts_ms": BASE_MS + second * 1000},
    }
    client = producer(log)
    place = {"key": json.dumps({"id": number}).encode(), "timestamp": BASE_MS + second * 1000, "partition": 0}
    client.produce(topic, json.dumps(value).encode(), **place)
    if op == "d":
        client.produce(topic, None, **place)
    assert client.flush(60) == 0


def people(topic, store):
    app = App(f"app-{topic}", store=store)
    table = app.table(
        topic,
        key="id",
        schema="id long, name string, letter string",
        format="debezium",
        partitions=1,
        serve="people",
        history="1 hour",
    )
    return app, table


@contextlib.contextmanager
def console(data, log):
    found = ConsoleSidecar(data, log, "127.0.0.1:0", environment={}, on_command=lambda _: None)
    try:
        yield found.url.rstrip("/")
    finally:
        found.end()


def test_a_table_is_served_and_read_as_it_was(our_log, spark, tmp_path, capfd):
    topic, data = new_topic(), tmp_path / "data"
    app, table = people(topic, f"sqlite:///{tmp_path}/views.db")
    ensure_topics(our_log, {topic: TopicSettings(partitions=1)})
    change(our_log, topic, 0, "c", 1, name="ada", letter="long")
    change(our_log, topic, 10, "c", 2, name="bob", letter="short")
    change(our_log, topic, 20, "u", 1, name="ada lovelace", letter=PLACEHOLDER)
    change(our_log, topic, 30, "d", 2)
    catch_up(app, our_log, data)
    ada, bob = {"id": 1, "name": "ada", "letter": "long"}, {"id": 2, "name": "bob", "letter": "short"}
    now = {**ada, "name": "ada lovelace"}
    states = {
        moment(0): [ada],
        moment(19): [ada, bob],
        moment(20): [now, bob],
        moment(30): [now],
        "0:1": [ada],
        "0:2": [ada, bob],
        "0:3": [now, bob],
        "0:5": [now],
    }
    with console(data, our_log) as url:
        assert ask(url, "GET", "/v1/views/people/rows").json["rows"] == [now]
        assert ask(url, "GET", "/v1/views/people").json["history_s"] == 3600
        for as_of, rows in states.items():
            answer = ask(url, "GET", f"/v1/views/people/rows?order=id&as_of={as_of}")
            assert (as_of, answer.json.get("rows")) == (as_of, rows)
        page = ask(url, "GET", f"/v1/views/people/rows?order=-name&limit=1&as_of={moment(20)}").json
        rest = ask(
            url, "GET", f"/v1/views/people/rows?order=-name&limit=1&as_of={moment(20)}&cursor={page['next']}"
        ).json
        assert (page["rows"], rest["rows"], rest["next"]) == ([bob], [now], None)
        for as_of, kind in (
            (moment(-3600), "outside-history"),
            ("0:99", "outside-history"),
            ("x", "bad-as-of"),
        ):
            refused = ask(url, "GET", f"/v1/views/people/rows?as_of={as_of}")
            assert (refused.status, refused.json["type"].rpartition(":")[2]) == (400, kind)
        refused = ask(url, "GET", f"/v1/views/people.history/rows?as_of={moment(0)}")
        assert refused.json["type"].endswith("no-history")
        versions = ask(url, "GET", "/v1/views/people.history/rows?order=_from_offset").json["rows"]
        assert [(row["id"], row["_deleted"], row["_from_offset"]) for row in versions] == [
            (1, False, 0),
            (2, False, 1),
            (1, False, 2),
            (2, True, 3),
            (2, True, 4),
        ]
    for as_of, rows in list(states.items())[::3]:
        command = [
            "views",
            "show",
            "people",
            "--as-of",
            as_of,
            "--order",
            "id",
            "--json",
            "--data",
            str(data),
        ]
        capfd.readouterr()
        assert run(command) == 0
        assert json.loads(capfd.readouterr().out)["rows"] == rows
    for as_of, rows in ((moment(20), [now, bob]), ("0:2", [ada, bob])):
        found = [
            row.asDict()
            for row in table.df(spark, bootstrap=our_log.bootstrap_servers, as_of=as_of).collect()
        ]
        assert (as_of, sorted(found, key=lambda row: row["id"])) == (as_of, rows)
    latest = table.where("name like 'ada%'").df(spark, bootstrap=our_log.bootstrap_servers)
    assert [row.asDict() for row in latest.collect()] == [now]
