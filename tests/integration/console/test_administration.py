"""Topics, groups, pipelines, dead letters, late records and alerts over HTTP, without Spark."""

import contextlib
import json
import os
import time
import uuid
from pathlib import Path

import pytest
from tests.integration.console.driven import Application
from tests.integration.console.http_client import ask
from tests.integration.prometheus_text import parse

from headrace.app.status.alerts import Alert
from headrace.app.status.lock import locked
from headrace.app.status.status import AppStatus, QueryStatus, StatusFile
from headrace.capture import CaptureSpec, Catalog
from headrace.client import CommittedOffset, GroupOffsets, producer
from headrace.client.write import OutputRecord, RecordSink
from headrace.derived import Follow, FollowCatalog, redis
from headrace.testing.console import ConsoleProcess
from headrace.views import ChangeKind

TIMEOUT_S = 240
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


@pytest.fixture
def send(our_log):
    def send(topic, values, partition=0, **fields):
        client = producer(our_log)
        for value in values:
            client.produce(topic, value, partition=partition, **fields)
        assert client.flush(TIMEOUT_S) == 0

    return send


@pytest.fixture
def change(console):
    return lambda method, path, body=None, **query: ask(console.url, method, path, body, **query)


def new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def wait_for(condition):
    """What the condition gives once it is true."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.1)
    return found


# --- topics --------------------------------------------------------------------------------------


def test_a_topic_is_made_described_altered_and_deleted(change, get, send):
    topic = new_name("made")
    made = change("POST", "/v1/topics", {"name": topic, "partitions": 2, "config": {"retention.ms": 100_000}})
    assert (made.status, made.json["config"]["retention.ms"]) == (201, "100000")
    assert change("POST", "/v1/topics", {"name": topic}).status == 409
    send(topic, [b"a", b"b"], partition=1)

    found = get(f"/v1/topics/{topic}").json
    assert [(each["partition"], each["start"], each["end"]) for each in found["partitions"]] == [
        (0, 0, 0),
        (1, 0, 2),
    ]
    assert (found["records"], found["storage"], found["config_overrides"]) == (2, "disk", ["retention.ms"])
    assert [(each["records"], each["exact"]) for each in found["partitions"]] == [(0, True), (2, True)]
    assert found["exact"]

    altered = change("PATCH", f"/v1/topics/{topic}", {"config": {"retention.ms": None}, "partitions": 3})
    assert (altered.status, altered.json["config_overrides"], len(altered.json["partitions"])) == (200, [], 3)
    assert change("PATCH", f"/v1/topics/{topic}", {"config": {"nonsense": "1"}}).status == 400
    assert change("PATCH", f"/v1/topics/{topic}", {}).status == 400

    assert change("DELETE", f"/v1/topics/{topic}").status == 400
    wrong = change("DELETE", f"/v1/topics/{topic}", confirm="another")
    assert (wrong.status, wrong.json["type"]) == (400, "urn:headrace:problem:not-confirmed")
    assert change("DELETE", f"/v1/topics/{topic}", confirm=topic).status == 200
    assert get(f"/v1/topics/{topic}").status == 404
    assert change("DELETE", f"/v1/topics/{topic}", confirm=topic).status == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": 5},
        {"name": "a", "partitions": 0},
        {"name": "a", "partitions": True},
        {"name": "a", "config": []},
        {"name": "a", "config": {"retention.ms": [1]}},
        {"name": "a", "more": 1},
        {"name": "a/b"},
        {"name": "a\0"},
        {"name": "a", "config": {"": "1"}},
        {"name": "a", "config": {"retention.ms": "1\0"}},
        [],
    ],
)
def test_a_topic_that_makes_no_sense_is_refused(change, body):
    assert change("POST", "/v1/topics", body).status == 400


def test_the_systems_own_topics_are_shown_and_not_to_be_changed(change, get):
    internal = [each["name"] for each in get("/v1/topics", limit=1000).json["topics"] if each["internal"]]
    assert internal
    assert not [
        each for each in get("/v1/topics", internal="false").json["topics"] if each["name"].startswith("__")
    ]
    for answer in (
        change("DELETE", f"/v1/topics/{internal[0]}", confirm=internal[0]),
        change("PATCH", f"/v1/topics/{internal[0]}", {"partitions": 9}),
        change("POST", "/v1/topics", {"name": "__mine"}),
    ):
        assert answer.status == 403


def test_topics_come_by_pages_and_by_search(get, make_topic):
    mark = new_name("page")
    names = [make_topic(f"{mark}-{number}") for number in range(5)]
    first = get("/v1/topics", search=mark.upper(), limit=2).json
    assert [each["name"] for each in first["topics"]] == names[:2]
    assert (first["total"], first["next"]) == (5, names[1])
    second = get("/v1/topics", search=mark, limit=3, after=first["next"]).json
    assert [each["name"] for each in second["topics"]] == names[2:]
    assert second["next"] is None
    assert get("/v1/topics", search="no such thing").json["topics"] == []


def test_changes_of_topics_are_in_the_audit_topic(change, get):
    topic = new_name("audited")
    change("POST", "/v1/topics", {"name": topic, "partitions": 1})
    change("DELETE", f"/v1/topics/{topic}", confirm=topic)

    def entries():
        found = get("/v1/audit", limit=100).json["entries"]
        return [each for each in found if topic in json.dumps(each)]

    assert len(wait_for(lambda: (found := entries()) and len(found) >= 2 and found)) == 2


# --- groups --------------------------------------------------------------------------------------


def test_a_groups_lag_is_told_in_records_and_seconds_with_its_trend(our_log, get, make_topic, send):
    topic, group = make_topic(new_name("lag"), 2), new_name("group")
    written_ms = int(time.time() * 1000) - 60_000
    send(topic, [b"1", b"2", b"3"], partition=0, timestamp=written_ms)
    send(topic, [b"4"], partition=1)
    with GroupOffsets(our_log, group) as offsets:
        offsets.commit(topic, {0: CommittedOffset(1), 1: CommittedOffset(1)})

    found = get(f"/v1/groups/{group}").json
    rows = {each["partition"]: each for each in found["partitions"]}
    assert (rows[0]["committed"], rows[0]["log_end"], rows[0]["lag_records"]) == (1, 3, 2)
    assert 60 <= rows[0]["lag_seconds"] < 60 + TIMEOUT_S
    assert (rows[1]["lag_records"], rows[1]["lag_seconds"]) == (0, 0.0)
    assert found["lag_records"] == 2

    def sampled():
        listed = {each["group"]: each for each in get("/v1/groups").json["groups"]}
        return group in listed and len(listed[group]["trend"]) >= 2 and listed[group]

    summary = wait_for(sampled)
    assert (summary["lag_records"], summary["members"]) == (2, 0)
    assert [lag for _, lag in summary["trend"]] == [2] * len(summary["trend"])
    assert get(f"/v1/groups/{group}").json["trend"][0][1] == 2


def test_the_number_of_a_batch_is_not_taken_for_an_offset(our_log, get, make_topic):
    """Sinks commit the number of their last batch to a topic of all sinks: there is no lag in that."""
    topic = make_topic(new_name("sunk"), 1)
    with contextlib.closing(RecordSink(our_log, topic, "q", topics={})) as sink:
        for batch in range(3):
            sink.write(batch, [OutputRecord(topic, b"k", b"v")])

    def sampled():
        listed = get("/v1/groups").json["groups"]
        return next((each for each in listed if each["group"] == f"headrace-{topic}"), None)

    found = wait_for(sampled)
    assert (found["lag_records"], found["lag_seconds"]) == (None, None)


def test_a_group_that_is_not_there_is_a_404(get):
    assert get("/v1/groups/nobody").status == 404
    assert get("/v1/groups/%00").status == 404


# --- dead letters --------------------------------------------------------------------------------


@pytest.fixture
def letters(make_topic, send):
    """Seven letters and a record that is none, in two dead-letter topics."""
    source, one, other = (
        make_topic(new_name("src"), 2),
        new_name("shop") + ".dead",
        new_name("more") + ".dead",
    )
    for topic in (one, other):
        make_topic(topic)

    def headers(number, reason):
        about = {
            "reason": reason,
            "topic": source,
            "partition": number % 2,
            "offset": 10 + number,
            "query": "q",
        }
        return [("own", b"1"), *((f"headrace.dead.{k}", str(v).encode()) for k, v in about.items())]

    now_ms = int(time.time() * 1000)
    for number in range(5):
        reason = "not JSON" if number % 2 else "<b>no time</b>"
        send(
            one,
            [b"v%d" % number],
            key=b"k%d" % number,
            headers=headers(number, reason),
            timestamp=now_ms + number,
        )
    send(one, [b"no letter"], timestamp=now_ms + 9)
    for number in range(5, 7):
        send(other, [b"v%d" % number], headers=headers(number, "late"), timestamp=now_ms + number)
    return source, one, other


def test_letters_come_newest_first_by_pages_with_their_reasons(get, letters):
    source, one, _ = letters
    values, cursor = [], None
    while True:
        page = get("/v1/dead-letters", topic=one, limit=2, cursor=cursor).json
        values += [each["value"] for each in page["letters"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert values == ["v4", "v3", "v2", "v1", "v0"]
    (letter,) = get("/v1/dead-letters", source=source, limit=1, reason="JSON").json["letters"]
    assert (letter["topic"], letter["offset"], letter["reason"], letter["redriven"]) == (
        one,
        3,
        "not JSON",
        False,
    )
    assert letter["source"] == {"topic": source, "partition": 1, "offset": 13}
    assert [each["name"] for each in letter["headers"]] == ["own"]
    assert get("/v1/dead-letters", topic="nothing.dead").status == 404
    assert get("/v1/dead-letters", cursor="nonsense").status == 400


def test_all_dead_letter_topics_are_read_as_one(get, letters):
    source, _, _ = letters
    found = get("/v1/dead-letters", source=source, limit=100).json["letters"]
    assert [each["value"] for each in found] == [f"v{number}" for number in range(6, -1, -1)]


def test_chosen_letters_and_then_the_rest_are_sent_again_each_once(get, change, letters):
    source, one, _ = letters
    chosen = {"letters": [{"topic": one, "partition": 0, "offset": offset} for offset in (1, 3)]}
    assert change("POST", "/v1/dead-letters/redrive", chosen).json == {
        "sent": 2,
        "skipped": 0,
        "to": {source: 2},
    }
    assert change("POST", "/v1/dead-letters/redrive", chosen).json["sent"] == 0
    found = get("/v1/dead-letters", topic=one, limit=100).json
    assert [each["offset"] for each in found["letters"] if each["redriven"]] == [3, 1]
    (about,) = [each for each in found["topics"] if each["topic"] == one]
    assert about["waiting"] == 4

    rest = change("POST", "/v1/dead-letters/redrive", {"topic": one}).json
    assert rest == {"sent": 3, "skipped": 1, "to": {source: 3}}
    assert change("POST", "/v1/dead-letters/redrive", {"topic": one}).json["sent"] == 0
    sent = get(f"/v1/topics/{source}/records", limit=100).json["records"]
    assert sorted((each["key"], each["partition"]) for each in sent) == [(f"k{n}", n % 2) for n in range(5)]
    (about,) = [each for each in get("/v1/dead-letters", topic=one).json["topics"] if each["topic"] == one]
    assert about["waiting"] == 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topic": "orders"},
        {"topic": 5},
        {"letters": []},
        {"letters": [{"topic": "shop.dead"}]},
        {"letters": [{"topic": "orders", "partition": 0, "offset": 0}]},
        {"topic": "shop.dead", "most": 0},
    ],
)
def test_what_cannot_be_sent_again_is_refused(change, body):
    assert change("POST", "/v1/dead-letters/redrive", body).status == 400


# --- an application ------------------------------------------------------------------------------


@pytest.fixture
def application(our_log, make_topic, send, tmp_path):
    made = Application(tmp_path, our_log.bootstrap_servers, make_topic, send)
    yield made
    made.store.close()


@pytest.fixture
def own_console(our_log, application):
    with ConsoleProcess(our_log.bootstrap_servers, data=application.data) as process:
        yield process


def test_pipelines_show_graph_status_late_records_and_alerts_of_an_application(own_console, application):
    def get(path, **query):
        return ask(own_console.url, "GET", path, **query)

    def get_well(path):
        """A log that takes long to answer is a 503, after which one asks again; it is printed."""
        answer = get(path)
        print(path, answer.status, answer.body[:500] if answer.status != 200 else "")
        assert answer.status in (200, 503), answer.body
        return answer.status == 200 and answer.json

    application.send(application.topic, [b'{"place": "here"}'] * 3)
    application.apply([0, 1], on_time=5, dropped=2)
    application.apply([0], ChangeKind.CORRECTION, on_time=1, corrected=1)
    application.drop(7, 0, 30)
    application.drop(8, 0, 90)

    before = wait_for(lambda: get_well("/v1/pipelines"))
    assert (before["running"], before["queries"]) == (False, [])
    assert [each["kind"] for each in get("/v1/alerts").json["alerts"]] == ["driver"]

    with locked(application.data):
        status_file = StatusFile(application.data)
        alert = Alert(
            kind="late",
            subject="counts",
            severity="warning",
            title="too late",
            detail="",
            next="",
            value=0.5,
            threshold=0.1,
            since=1.0,
        ).to_json()
        query = QueryStatus(state="running", records=3, positions={"0": 3}, watermark_us=60_000_000)
        status_file.note(
            lambda status, now: AppStatus(
                pid=os.getpid(),
                started_at=now,
                updated_at=now,
                queries={application.topic: query},
                alerts=(alert,),
            )
        )
        status_file.message("hello")
        found = wait_for(
            lambda: (state := get_well("/v1/pipelines")) and state["messages"] and state["running"] and state
        )
        assert found["application"]["name"] == application.name
        assert found["pid"] == os.getpid()
        (asked,) = found["queries"]
        assert (asked["state"], asked["watermark"]) == ("running", "1970-01-01T00:01:00.000Z")
        nodes = {each["kind"]: each for each in found["nodes"]}
        assert nodes["view"]["lag_records"] == 0
        assert nodes["view"]["state"] == "running"
        assert get("/v1/alerts").json["alerts"] == [alert]
        metrics = get("/metrics").body.decode()
        assert 'headrace_alert{kind="late",subject="counts"} 1' in metrics
        assert f'headrace_query_records_total{{query="{application.topic}"}} 3' in metrics
        assert 'headrace_view_events_total{view="counts",outcome="dropped"} 2' in metrics
        page = PAGE.read_text().partition("## Application")[2]
        documented = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `headrace_")}
        assert documented == parse(metrics).keys()
        status_file.close()

    late = get("/v1/late").json
    assert late["topic"] == application.late
    (counters,) = late["views"]
    assert counters["counters"] == {
        "on_time": 6,
        "corrected": 1,
        "dropped": 2,
        "filtered": 0,
        "dead": 0,
        "repeated": 0,
        "declared": 0,
        "skipped": 0,
    }
    (window,) = late["windows"]
    assert (window["dropped"], window["corrected"], window["late_by_s"]) == (2, 1, 90.0)
    application.drop(9, 1, 5)
    application.drop(8, 0, 90)  # once more, as a rebuild writes it
    assert [each["dropped"] for each in get("/v1/late").json["windows"]] == [1, 2]

    for node in (f"topic:{application.topic}", f"query:{application.topic}"):
        rows = get(f"/v1/pipelines/nodes/{node}/sample", limit=2).json["rows"]
        assert [(each["offset"], each["value"]) for each in rows] == [
            (2, {"place": "here"}),
            (1, {"place": "here"}),
        ]
    for node in ("view:counts", "window:counts"):
        rows = get(f"/v1/pipelines/nodes/{node}/sample", limit=1).json["rows"]
        assert [each["window_start"] for each in rows] == ["1970-01-01T00:01:00.000000Z"]
    assert get("/v1/pipelines/nodes/view:nothing/sample").status == 404


def test_a_rebuild_wants_the_name_a_driver_and_somebody_who_listens(own_console, application):
    def rebuild(body):
        return ask(own_console.url, "POST", "/v1/pipelines/rebuild", body)

    assert rebuild({"confirm": "another"}).status == 400
    stopped = rebuild({"confirm": application.name})
    assert (stopped.status, "headrace run app.py --rebuild" in stopped.json["next"]) == (409, True)
    with locked(application.data):
        alone = rebuild({"confirm": application.name})
        assert (alone.status, alone.json["type"]) == (409, "urn:headrace:problem:no-driver")


def test_a_console_without_an_application_says_so(our_log):
    with ConsoleProcess(our_log.bootstrap_servers) as alone:
        assert ask(alone.url, "GET", "/v1/pipelines").json["application"] is None
        assert ask(alone.url, "GET", "/v1/late").json == {"topic": None, "views": [], "windows": []}
        assert ask(alone.url, "POST", "/v1/pipelines/rebuild", {"confirm": "x"}).status == 404
        assert ask(alone.url, "GET", "/v1/pipelines/nodes/topic:x/sample").status == 404


def test_a_capture_or_follower_that_needs_attention_has_an_alert(get, our_log):
    before = get("/v1/alerts").json["alerts"]
    now_ms = int(time.time() * 1000)
    said = {"state": "stopped", "at_ms": now_ms, "error": "the slot is lost", "error_at_ms": now_ms}
    captured, followed = contextlib.closing(Catalog(our_log)), contextlib.closing(FollowCatalog(our_log))
    with captured as captures, followed as followers:
        captures.add(CaptureSpec(name="shop", url="postgresql://me@db/shop?password=env:SHOP_PASSWORD"))
        followers.add(
            Follow(name="cache", topic="shop.public.orders", into=redis("redis://cache", prefix="order:"))
        )
        captures.say("shop", said)
        followers.say("cache", {**said, "error": "no such database"})
        try:
            expected = {"capture shop": "the slot is lost", "follower cache": "no such database"}
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                found = [each for each in get("/v1/alerts").json["alerts"] if each not in before]
                if {each["id"]: each["detail"] for each in found} == expected:
                    break
                time.sleep(0.05)
            assert {each["id"]: each["detail"] for each in found} == expected
            assert {each["severity"] for each in found} == {"critical"}
            (shop,), (cache,) = get("/v1/captures").json["captures"], get("/v1/followers").json["followers"]
            assert (shop["source"], shop["state"], shop["error"]) == (
                "postgresql://me@db/shop",
                "stopped",
                "the slot is lost",
            )
            assert (cache["topic"], cache["place"], cache["error"]) == (
                "shop.public.orders",
                "order:",
                "no such database",
            )
            assert 'headrace_capture_running{capture="shop"} 0' in get("/metrics").body.decode()
        finally:
            captures.remove("shop")
            captures.gone("shop")
            followers.remove("cache")
