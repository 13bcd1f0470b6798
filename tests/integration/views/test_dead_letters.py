"""`headrace deadletters` on our log and on a Kafka."""

import itertools
import json
import random
import time

import pyarrow as pa
import pytest
from reading import read

from headrace.app.query.sinks.side_topics import SideTopics
from headrace.cli.main import run
from headrace.client.topics import TopicSettings
from headrace.client.write import OutputRecord, RecordSink

_names = itertools.count()
NOISE = random.Random(1).randbytes(100_000)
RECENT_MS = (int(time.time()) - 3_600) * 1000


@pytest.fixture
def letters(log):
    """A source of two partitions, and a dead-letter topic that holds five of its records and a stray."""
    number = next(_names)
    source, dead = f"orders-{number}", f"shop-{number}.dead"
    sink = RecordSink(
        log, dead, "q", topics={source: TopicSettings(partitions=2), dead: TopicSettings(partitions=1)}
    )
    found = [letter(dead, source, index) for index in range(5)]
    sink.write(0, [*found[:3], OutputRecord(dead, b"stray", b"no word of where it came from"), *found[3:]])
    sink.close()
    return source, dead


def letter(dead, source, index):
    reason = "not JSON" if index % 2 else "no event time"
    about = {"reason": reason, "topic": source, "partition": index % 2, "offset": 10 + index, "query": "q"}
    about["timestamp_ms"] = RECENT_MS + index
    if index % 2:
        about["error"] = "Missing a colon\x1b"
    headers = (
        ("own", b"1"),
        *((f"headrace.dead.{name}", str(value).encode()) for name, value in about.items()),
    )
    return OutputRecord(dead, b"k%d" % index, b"v%d\x1b" % index, headers)


@pytest.fixture
def headrace(log, capsys):
    def invoke(*arguments, code=0):
        capsys.readouterr()
        assert run([*arguments, "--bootstrap", log.bootstrap_servers]) == code
        return capsys.readouterr().out

    return invoke


def test_letters_are_listed_with_where_they_came_from_and_why(letters, headrace):
    source, dead = letters
    (about,) = [
        each
        for each in json.loads(headrace("deadletters", "list", "--json"))["topics"]
        if each["topic"] == dead
    ]
    assert (about["letters"], about["waiting"], about["exact"]) == (6, 6, True), "and no marker"
    shown = [json.loads(line) for line in headrace("deadletters", "list", dead, "--json").splitlines()]
    assert [each["key"] for each in shown] == ["k0", "k1", "k2", "k3", "k4"]
    assert shown[1]["dead_letter"] == {
        "reason": "not JSON",
        "error": "Missing a colon\x1b",
        "source": {"topic": source, "partition": 1, "offset": 11},
        "owner": "q",
    }
    assert (shown[0]["dead_letter"]["reason"], shown[0]["dead_letter"]["error"]) == ("no event time", None)
    assert shown[1]["headers"] == [{"key": "own", "value": "1", "encoding": "text"}]
    text = headrace("deadletters", "list", dead, "--reason", "json", "--most", "1")
    assert f"from {source}:1:11  not JSON (Missing a colon\\x1b)\n" in text
    assert "k1 = v1\\x1b" in text and "\x1b" not in text
    assert headrace("deadletters", "list", dead, "--reason", "COLON", "--most", "1") == text
    assert headrace("deadletters", "list", dead, "--source", "elsewhere") == ""


def test_redriven_letters_are_on_their_topic_once_as_they_were(log, letters, headrace):
    source, dead = letters
    plan = json.loads(headrace("deadletters", "redrive", dead, "--dry-run", "--json"))
    assert plan == {"from": dead, "sent": 5, "skipped": 1, "to": {source: 5}, "dry_run": True}
    assert read(log, source) == []
    assert "2 dead letters" in headrace("deadletters", "redrive", dead, "--most", "2")
    assert len(headrace("deadletters", "list", dead, "--waiting", "--json").splitlines()) == 3
    assert json.loads(headrace("deadletters", "redrive", dead, "--json"))["sent"] == 3
    assert "0 dead letters" in headrace("deadletters", "redrive", dead)
    found = sorted(read(log, source), key=lambda each: each["key"])
    assert [(each["key"], each["partition"]) for each in found] == [(b"k%d" % n, n % 2) for n in range(5)]
    for number, each in enumerate(found):
        assert each["value"] == b"v%d\x1b" % number
        headers = {header["key"]: header["value"].decode() for header in each["headers"]}
        assert headers.pop("headrace.redriven.from").startswith(f"{dead}:0:")
        assert headers == {
            "own": "1",
            "headrace.redriven.source": f"{source}:{number % 2}:{10 + number}",
            "headrace.redriven.owner": "q",
        }
        assert round(each["timestamp"].timestamp() * 1000) == RECENT_MS + number


def written(log, topic, *records, **settings):
    sink = RecordSink(log, f"w-{topic}", "q", topics={topic: TopicSettings(partitions=1, **settings)})
    sink.write(0, records)
    sink.close()


def shortened_letters(log, source, dead, *, offsets):
    """Letters of records of a source, of which they have only the beginning."""
    table = pa.table(
        {
            "partition": [0] * len(offsets),
            "offset": offsets,
            "timestamp": pa.array([RECENT_MS] * len(offsets), pa.timestamp("ms", tz="UTC")),
            "key": [b"k"] * len(offsets),
            "value": [NOISE] * len(offsets),
            "headers": [[{"key": "own", "value": b"1"}]] * len(offsets),
            "reason": ["no event time"] * len(offsets),
            "error": pa.nulls(len(offsets), pa.string()),
        }
    )
    topics = SideTopics(dead.removesuffix(".dead"), {dead: 10_000})
    return list(topics.dead(source, "q", [table]))


def test_a_letter_that_has_only_the_beginning_of_its_record_is_sent_as_the_record(log, headrace):
    source, dead = f"orders-{next(_names)}", f"shop-{next(_names)}.dead"
    whole = OutputRecord(source, b"k", NOISE, (("own", b"1"), ("headrace.redriven.owner", b"an older one")))
    written(log, source, whole, configs={"max.message.bytes": str(len(NOISE) + 140)})
    letters = shortened_letters(log, source, dead, offsets=[0, 7])
    assert all(len(each.value) <= 5_000 for each in letters)
    written(log, dead, *letters)
    (shown, _) = [json.loads(line) for line in headrace("deadletters", "list", dead, "--json").splitlines()]
    assert shown["dead_letter"]["truncated"] > len(NOISE)
    done = json.loads(headrace("deadletters", "redrive", dead, "--json"))
    assert (done["sent"], done["skipped"]) == (1, 1), "what is not on its topic any more stays"
    assert done["raised"].keys() == {source}, "for the headers that were added"
    _, again = read(log, source)
    assert (again["key"], again["value"]) == (b"k", NOISE)
    headers = [(each["key"], each["value"]) for each in again["headers"]]
    assert headers == [
        ("own", b"1"),
        ("headrace.redriven.from", f"{dead}:0:0".encode()),
        ("headrace.redriven.source", f"{source}:0:0".encode()),
        ("headrace.redriven.owner", b"q"),
    ]


def test_a_record_that_its_topic_would_remove_at_once_is_not_sent(log, letters, headrace):
    source, dead = letters
    headrace("topics", "alter", source, "--config", "retention.ms=60000")
    headrace("deadletters", "redrive", dead, code=1)
    assert read(log, source) == []
    headrace("topics", "alter", source, "--config", "retention.ms=-1")
    assert json.loads(headrace("deadletters", "redrive", dead, "--json"))["sent"] == 5


def test_a_topic_that_is_gone_ends_it_and_loses_nothing(log, headrace, capsys):
    number = next(_names)
    dead = f"gone-{number}.dead"
    sink = RecordSink(log, dead, "q", topics={dead: TopicSettings()})
    sink.write(0, [letter(dead, f"never-made-{number}-\xe4", 0)])
    sink.close()
    headrace("deadletters", "redrive", dead, code=1)
    assert len(headrace("deadletters", "list", dead, "--waiting", "--json").splitlines()) == 1
    headrace("deadletters", "list", f"nosuch-{number}", code=1)


def test_letters_are_counted_by_their_reasons(log, letters, headrace):
    source, dead = letters
    shown = json.loads(headrace("deadletters", "list", dead, "--by-reason", "--json"))["reasons"]
    assert [(each["reason"], each["source"], each["letters"]) for each in shown] == [
        ("no event time", source, 3),
        ("not JSON", source, 2),
    ]
    assert shown[1]["example"] == "not JSON (Missing a colon\x1b)"
    text = headrace("deadletters", "list", dead, "--by-reason")
    assert "no event time" in text and "\x1b" not in text


def test_what_was_sent_again_is_counted_by_letters_too(letters, headrace):
    _, dead = letters

    def counted():
        topics = json.loads(headrace("deadletters", "list", "--json"))["topics"]
        return next((each["letters"], each["waiting"]) for each in topics if each["topic"] == dead)

    headrace("deadletters", "redrive", dead, "--most", "2")
    assert counted() == (6, 4)
    headrace("deadletters", "redrive", dead)
    assert counted() == (6, 0), "the stray was looked at, and stays"
