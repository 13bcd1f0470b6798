"""Views as changelogs: what consumers of the topic find, on our log and on a Kafka."""

import itertools
import json
import random
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewTopic
from reading import committed, read

from headrace.client import admin
from headrace.errors import FencedError, RequestError
from headrace.views import ChangeKind, ViewBatch, ViewSchema, open_store

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))
from view_stores import COUNTS, batch, put, remove, row, table

_names = itertools.count()
ENTRY = b'{"headrace":"ledger"}'


@pytest.fixture
def topic():
    return f"changelog-{next(_names)}"


def opened(log, topic, options=""):
    store = open_store(f"topic://{topic}{options}", bootstrap=log.bootstrap_servers)
    store.prepare(COUNTS)
    store.begin("counts", "q")
    return store


def changes(log, topic):
    return [each for each in read(log, topic) if each["key"] != ENTRY]


def test_a_correction_is_a_pair_and_every_change_says_what_it_reflects(log, topic):
    store = opened(log, topic)
    first, second = row("a", 0, 1), row("a", 0, 2)
    store.apply("counts", batch(0, put(first), offsets={"orders": {0: 5}}))
    store.apply(
        "counts", batch(1, put(second, before=first), remove(row("b", 0, 7)), offsets={"orders": {0: 9}})
    )
    found = [json.loads(each["value"]) for each in changes(log, topic)]
    assert [each["kind"] for each in found] == ["close", "retract", "correct", "retract"]
    assert [each["batch"] for each in found] == [0, 1, 1, 1]
    assert [each["offsets"] for each in found] == [{"orders": {"0": 5}}] + 3 * [{"orders": {"0": 9}}]
    retracted, corrected = found[1:3]
    assert retracted["before"]["orders"] == 1 and retracted["after"] is None
    assert corrected["before"]["orders"] == 1 and corrected["after"]["orders"] == 2
    keys = [each["key"] for each in changes(log, topic)]
    assert len(set(keys[:3])) == 1 and json.loads(keys[0]) == list(found[0]["key"].values())
    assert committed(log, f"headrace-view-{topic}", "headrace-batches") == 2, "the next batch"
    assert store.read("counts").to_pylist() == [second]
    store.close()


def test_a_repeated_batch_writes_nothing_and_an_older_owner_is_fenced(log, topic):
    old = opened(log, topic)
    old.apply("counts", batch(0, put(row("a", 0, 1))))
    new = opened(log, topic)
    assert not new.apply("counts", batch(0, put(row("z", 0, 1))))
    with pytest.raises(FencedError, match="must stop"):
        old.apply("counts", batch(1, put(row("zombie", 0, 1))))
    assert new.apply("counts", batch(1, put(row("b", 0, 1))))
    assert [each["region"] for each in new.read("counts").to_pylist()] == ["a", "b"]
    assert len(changes(log, topic)) == 2
    old.close()
    new.close()


def test_a_compacted_topic_has_the_newest_row_of_each_key_and_tombstones(log, topic):
    store = opened(log, topic, "?compacted=true&partitions=3")
    first, second, gone = row("a", 0, 1), row("a", 0, 2), row("b", 0, 1)
    store.apply("counts", batch(0, put(first), put(gone)))
    store.apply("counts", batch(1, put(second, before=first), remove(gone)))
    values = [each["value"] for each in changes(log, topic)]
    assert sorted(json.loads(each)["kind"] for each in values if each) == ["close", "close", "correct"]
    assert values.count(None) == 1
    store.begin("counts", "rebuild")
    store.apply("counts", batch(0, put(row("c", 0, 1)), query="rebuild"))
    assert [each["region"] for each in store.read("counts").to_pylist()] == ["c"]
    assert [each["value"] for each in changes(log, topic)].count(None) == 2, "the old rows were taken back"
    store.close()


def test_a_topic_with_other_records_is_left_alone(log, topic):
    from headrace.client import producer
    from headrace.client.topics import TopicSettings
    from headrace.client.topics.ensure import ensure_topics

    ensure_topics(log, {topic: TopicSettings(partitions=1)})
    sender = producer(log)
    sender.produce(topic, b"somebody's own")
    sender.flush(20)
    store = open_store(f"topic://{topic}", bootstrap=log.bootstrap_servers)
    assert store.views() == []
    with pytest.raises(RequestError, match="choose another topic"):
        store.prepare(COUNTS)
    store.close()


def test_partitions_that_were_added_are_refused(our_log, topic):
    from confluent_kafka.admin import NewPartitions

    from headrace.client import admin

    store = opened(our_log, topic)
    store.apply("counts", batch(0, put(row("a", 0, 1))))
    client = admin(our_log)
    client.create_partitions([NewPartitions(topic, 2)])[topic].result(20)
    with pytest.raises(RequestError, match="keys have moved"):
        store.begin("counts", "q")
    store.close()


NOTES = ViewSchema("notes", ("name",), pa.schema([("name", pa.string()), ("note", pa.string())]))


def noted(number, *changes):
    return ViewBatch(query_id="q", batch_id=number, changes=table(list(changes), NOTES))


def notes(log, topic):
    store = open_store(f"topic://{topic}", bootstrap=log.bootstrap_servers, dead_letters=f"{topic}.dead")
    store.prepare(NOTES)
    store.begin("notes", "q")
    return store


def test_a_row_that_the_topic_does_not_take_is_a_dead_letter_and_the_rest_goes_on(log, topic):
    client = admin(log)
    small = NewTopic(topic, 1, 1, config={"max.message.bytes": "20000"})  # by somebody's choice
    client.create_topics([small])[topic].result(60)
    store = notes(log, topic)
    first, large, less, other = (
        {"name": name, "note": note}
        for name, note in (("a", "x"), ("a", random.Random(1).randbytes(20_000).hex()), ("a", "y"), ("b", ""))
    )
    store.apply("notes", noted(0, put(first)))
    store.apply("notes", noted(1, put(large, before=first, kind=ChangeKind.UPDATE), put(other)))
    assert store.read("notes").to_pylist() == [other], "the row that was is not the row that is"
    (letter,) = read(log, f"{topic}.dead")
    headers = {each["key"]: each["value"].decode() for each in letter["headers"]}
    assert headers["headrace.dead.reason"].startswith(f"row too large for its topic: {topic}")
    assert json.loads(letter["value"])["after"] == large, "whose own topic takes more"
    store.apply("notes", noted(2, put(less, before=large, kind=ChangeKind.UPDATE)))
    assert sorted(each["note"] for each in store.read("notes").to_pylist()) == ["", "y"]
    assert len(read(log, f"{topic}.dead")) == 1, "a change that is told without what it replaces is whole"
    store.close()


def test_a_topic_of_an_older_version_takes_larger_rows_now(log, topic):
    client = admin(log)
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    store = notes(log, topic)
    large = {"name": "a", "note": random.Random(1).randbytes(700_000).hex()}
    store.apply("notes", noted(0, put(large), put(large, before=large)))
    assert store.read("notes").to_pylist() == [large]
    store.close()
