"""Hooks on a real log, with real receivers: what a receiver may rely on."""

import json
import random
import threading

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic
from hook_lives import LOCAL, Log, delivering, new_secret
from receivers import OK, Receiver, answer

from headrace.client import GroupOffsets
from headrace.client.write import OutputRecord, RecordSink
from headrace.errors import FencedError
from headrace.hooks.hook import hook_group
from headrace.records import SourceRecord, source_header
from headrace.testing.broker import BrokerProcess
from headrace.views import ChangeKind, ViewBatch, ViewSchema, open_store


def test_every_record_arrives_signed_in_the_order_of_its_partition(any_log, receiver):
    log = any_log
    topic = log.topic(partitions=3)
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    with delivering(log):
        for key in "abcdef":
            log.send(topic, *({"key": key, "n": n} for n in range(20)), key=key)
        receiver.wait_for_count(120)
        log.wait_for_counts(f"{topic}.webhook", delivered=120)
    assert len(set(receiver.ids)) == 120
    for key in "abcdef":
        assert [each.data["n"] for each in receiver.requests if each.data["key"] == key] == list(range(20))
    found = log.hooks()[f"{topic}.webhook"]
    assert (found["behind"], found["counts"]["retried"], found["last"]["outcome"]) == (0, 0, "delivered")
    with GroupOffsets(log.connection, hook_group(log.app.name, f"{topic}.webhook")) as offsets:
        shown = offsets.fetch(topic, [0, 1, 2])
    assert {str(each): place.offset for each, place in shown.items()} == found["positions"]
    request = receiver.requests[0]
    assert request.line == "POST /in HTTP/1.1"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert json.loads(request.body).keys() == {"type", "timestamp", "data", "key", "source"}


def test_a_new_hook_begins_now_unless_it_is_told_to_begin_at_the_start(log, receiver):
    topic = log.topic()
    log.send(topic, "old")
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    log.app.webhook(topic, url=receiver.url + "/all", name="all", start="earliest", **LOCAL)
    with delivering(log):
        log.send(topic, "new")
        receiver.wait_for_count(3)
        log.wait_for_counts(f"{topic}.webhook", delivered=1)
        log.wait_for_counts("all", delivered=2)
    with delivering(log):  # and once it has begun, it goes on where it was
        log.send(topic, "newer")
        receiver.wait_for_count(5)
    by_path = {line: [each.data for each in receiver.requests if each.line == line]
               for line in ("POST /in HTTP/1.1", "POST /in/all HTTP/1.1")}  # fmt: skip
    assert by_path == {
        "POST /in HTTP/1.1": ["new", "newer"],
        "POST /in/all HTTP/1.1": ["old", "new", "newer"],
    }


def test_failures_are_tried_again_and_hold_their_partition_alone(log, receiver):
    topic = log.topic(partitions=2)
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    fail = threading.Event()
    fail.set()
    receiver.reply = lambda request, _: answer(500) if request.data == "bad" and fail.is_set() else OK
    with delivering(log):
        log.send(topic, "bad", "after", partition=0)
        log.send(topic, "other", partition=1)
        receiver.wait_for(lambda requests: sum(each.data == "bad" for each in requests) >= 3)
        receiver.wait_for(lambda requests: any(each.data == "other" for each in requests))
        assert "after" not in [each.data for each in receiver.requests]
        fail.clear()
        receiver.wait_for(lambda requests: requests[-1].data == "after")
        log.wait_for_counts(f"{topic}.webhook", delivered=3)
    assert len({each.id for each in receiver.requests if each.data == "bad"}) == 1
    assert log.hooks()[f"{topic}.webhook"]["counts"]["retried"] >= 3


def test_a_receiver_that_hangs_delays_its_own_hook_only(log, receiver):
    topic = log.topic()
    until_it_is_left = lambda connection: connection.recv(1)  # noqa: E731
    with Receiver(receiver.secret, reply=lambda request, number: until_it_is_left) as hanging:
        log.app.webhook(topic, url=hanging.url, name="hangs", timeout="1 hour", **LOCAL)
        log.app.webhook(topic, url=receiver.url, **LOCAL)
        with delivering(log):
            log.send(topic, *range(50))
            receiver.wait_for_count(50)
            hanging.wait_for_count(1)
    assert [each.data for each in receiver.requests] == list(range(50))


def test_retry_after_is_waited_for(log, receiver):
    topic = log.topic()
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    receiver.reply = lambda _, number: answer(429, ["retry-after: 1"]) if number == 0 else OK
    with delivering(log):
        log.send(topic, "x")
        receiver.wait_for_count(2)
    assert receiver.requests[1].at - receiver.requests[0].at >= 1


def test_gone_turns_a_hook_off_for_good_until_it_is_turned_on(log, receiver):
    topic = log.topic()
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    receiver.reply = lambda _, number: answer(410) if number == 0 else OK
    name = f"{topic}.webhook"
    with delivering(log):
        log.send(topic, "first", "second")
        log.wait_for(lambda hooks: not hooks[name]["enabled"])
    assert "410" in log.hooks()[name]["reason"]
    with delivering(log):
        log.send(topic, "third")
        log.wait_for(lambda hooks: hooks[name]["behind"] == 3)
        assert len(receiver.requests) == 1
        log.command("hooks", "enable", name)
        receiver.wait_for_count(4)
        log.command("hooks", "disable", name)
        log.wait_for(lambda hooks: not hooks[name]["enabled"])
    assert [each.data for each in receiver.requests] == ["first", "first", "second", "third"]
    assert receiver.ids[0] == receiver.ids[1]


@pytest.mark.parametrize("status", [404, 302])
def test_what_is_refused_becomes_a_dead_letter_and_the_rest_goes_on(log, receiver, status):
    topic = log.topic()
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    receiver.reply = lambda request, _: (
        answer(status, [f"location: {receiver.url}/elsewhere"], b"go\x1baway")
        if request.data == "bad"
        else OK
    )
    with delivering(log):
        log.send(topic, "good", "bad", "better", headers=[("h", b"1")])
        log.wait_for_counts(f"{topic}.webhook", delivered=2, refused=1, dead=1, retried=0)
    assert [each.data for each in receiver.requests] == ["good", "bad", "better"]
    (letter,) = log.read(f"{log.app.name}.hooks.dead")
    headers = dict(letter.headers())
    assert json.loads(letter.value()) == "bad"
    assert (headers["h"], headers["headrace.dead.topic"]) == (b"1", topic.encode())
    assert (headers["headrace.dead.partition"], headers["headrace.dead.offset"]) == (b"0", b"1")
    assert headers["headrace.hook.id"].decode() == receiver.ids[1]
    assert str(status).encode() in headers["headrace.dead.reason"]
    assert b"\x1b" not in headers["headrace.dead.reason"]


def test_a_dead_letter_larger_than_its_topic_takes_is_shortened_and_the_rest_goes_on(log, receiver):
    """The topic of dead letters was there, and takes less than the hook would have made it for."""
    topic, dead = log.topic(), f"{log.app.name}.hooks.dead"
    new = NewTopic(dead, 1, config={"max.message.bytes": "20000"})
    log.admin.create_topics([new])[dead].result(20)
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    receiver.reply = lambda request, _: OK if isinstance(request.data, int) else answer(404)
    noise = random.Random(3)  # batches are compressed, and the limit is on them
    large = noise.randbytes(50_000).hex()
    with delivering(log):
        log.send(topic, 1, large, 2, "small", 3, headers=[("h", noise.randbytes(30_000))])
        log.wait_for_counts(f"{topic}.webhook", delivered=3, refused=2, dead=2)
    first, second = log.read(dead)
    headers = dict(first.headers())
    assert json.dumps(large).encode().startswith(first.value())
    assert len(first.value()) < 20_000
    assert int(headers["headrace.dead.truncated"]) > 130_000
    assert (headers["headrace.dead.topic"], headers["headrace.dead.offset"]) == (topic.encode(), b"1")
    assert headers["headrace.hook.name"] == f"{topic}.webhook".encode()
    assert headers["headrace.hook.id"].decode() == receiver.ids[1]
    assert "h" not in headers
    assert b"404" in headers["headrace.dead.reason"]
    assert dict(second.headers())["headrace.dead.offset"] == b"3"
    with delivering(log):  # what is sent again is the original, not what is left of it in the letter
        receiver.reply = lambda *_: OK
        log.command("deadletters", "redrive", dead)
        log.wait_for_counts(f"{topic}.webhook", delivered=5)
    assert [each.data for each in receiver.requests][-2:] == [large, "small"]


def test_a_record_that_was_tried_too_often_is_given_up_and_can_be_sent_again(log, receiver):
    topic = log.topic()
    log.app.webhook(topic, url=receiver.url, tries=3, **LOCAL)
    log.app.webhook(topic, url=receiver.url + "/other", name="other", **LOCAL)
    broken = threading.Event()
    broken.set()

    def reply(request, _):
        return answer(503) if broken.is_set() and "other" not in request.line and request.data == 1 else OK

    receiver.reply = reply
    with delivering(log):
        log.send(topic, 0, 1, 2)
        log.wait_for_counts(f"{topic}.webhook", delivered=2, retried=2, refused=0, dead=1)
        log.wait_for_counts("other", delivered=3)
        broken.clear()
        log.command("deadletters", "redrive", f"{log.app.name}.hooks.dead")
        log.wait_for_counts(f"{topic}.webhook", delivered=3)
        log.wait_for_counts("other", muted=1)
    own = [each for each in receiver.requests if "other" not in each.line]
    assert [each.data for each in own] == [0, 1, 1, 1, 2, 1]
    assert len({each.id for each in own if each.data == 1}) == 1
    assert len(receiver.requests) == 9


# --- rebuilds -------------------------------------------------------------------------------------


def derived(log, topic, source, offsets, query):
    """Rows of a derived topic, as a query writes them: keys anywhere, sources in order."""
    sink = RecordSink(log.connection, f"{log.app.name}-orders", query)
    for batch, start in enumerate(range(0, len(offsets), 7)):
        rows = [
            OutputRecord(
                topic,
                None,
                json.dumps({"of": offset}).encode(),
                (source_header(SourceRecord(source, 0, offset)),),
            )
            for offset in offsets[start : start + 7]
        ]
        sink.write(batch, rows)
    sink.close()


def test_a_rebuild_sends_nothing_again_and_what_is_new_once(any_log, receiver):
    log = any_log
    source, topic = log.topic("orders"), log.topic("large", partitions=3)
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    name = f"{topic}.webhook"
    with delivering(log, sources=[source]):
        log.send(source, *range(60))
        derived(log, topic, source, range(40), "first")
        receiver.wait_for_count(40)
        log.wait_for_counts(name, delivered=40)
    ids = {each.source[2]: each.id for each in receiver.requests}
    with delivering(log, sources=[source]):
        derived(log, topic, source, range(60), "rebuilt")
        log.wait_for_counts(name, delivered=60, muted=40)
        derived(log, topic, source, range(60), "rebuilt again")
        log.wait_for_counts(name, delivered=60, muted=100)
        log.wait_for(lambda hooks: hooks[name]["behind"] == 0)
    assert sorted(each.source[2] for each in receiver.requests) == list(range(60))
    assert len(ids) == 40
    assert {each.source[0] for each in receiver.requests} == {source}


def test_a_rebuild_does_not_send_what_is_older_than_the_hook(log, receiver):
    source, topic = log.topic("orders"), log.topic("large", partitions=2)
    log.send(source, *range(30))
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    with delivering(log, sources=[source]):
        log.send(source, *range(10))
        derived(log, topic, source, range(40), "rebuilt")
        log.wait_for_counts(f"{topic}.webhook", delivered=10, muted=30)
    assert sorted(each.source[2] for each in receiver.requests) == list(range(30, 40))


@pytest.mark.parametrize("compacted", ["false", "true"])
def test_a_rebuild_of_a_changelog_sends_only_what_it_changed(log, receiver, compacted):
    topic, view = (
        f"{log.app.name}-changes",
        ViewSchema("counts", ("region",), pa.schema([("region", pa.string()), ("orders", pa.int64())])),
    )
    store = open_store(f"topic://{topic}?compacted={compacted}", bootstrap=log.bootstrap)
    store.prepare(view)
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    with delivering(log):
        show(store, "first", 0, north=1, south=2, west=3)
        show(store, "first", 1, east=4)
        receiver.wait_for_count(4)
        show(store, "rebuilt", 0, north=1, south=20, east=4, up=5)
        show(store, "rebuilt", 1, down=6)
        receiver.wait_for(lambda requests: any('"down"' in each.body.decode() for each in requests))
        log.wait_for_counts(f"{topic}.webhook", muted=4)
    store.close()
    news = [json.loads(each.body) for each in receiver.requests[4:]]
    if compacted == "true":
        told = sorted((json.loads(each["key"])[0], each["data"] is not None) for each in news)
        assert told == [("down", True), ("south", False), ("south", True), ("up", True), ("west", False)]
        return
    told = sorted((each["data"]["kind"], each["data"]["key"]["region"]) for each in news)
    assert told == [
        ("close", "down"),
        ("close", "south"),
        ("close", "up"),
        ("retract", "south"),
        ("retract", "west"),
    ]


def show(store, query, batch, **rows):
    """One batch of a view: these rows."""
    after = [{"region": region, "orders": orders} for region, orders in rows.items()]
    kind = pa.struct([("region", pa.string()), ("orders", pa.int64())])
    changes = pa.table(
        {
            "region": list(rows),
            "kind": pa.array([int(ChangeKind.CLOSE)] * len(rows), pa.int8()),
            "before": pa.nulls(len(rows), kind),
            "after": pa.array(after, kind),
        }
    )
    if batch == 0:
        store.begin("counts", query)
    store.apply("counts", ViewBatch(query_id=query, batch_id=batch, changes=changes))


def test_a_source_that_is_not_on_the_log_is_not_believed(log, receiver):
    """Or whoever may write to a topic could silence its hooks with one header."""
    source, topic = log.topic("orders"), log.topic("large")
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    with delivering(log, sources=[source]):
        log.send(topic, "far", headers=[source_header(SourceRecord(source, 0, 10**12))])
        log.send(topic, "nowhere", headers=[source_header(SourceRecord("no-such-topic", 0, 1))])
        log.send(topic, "nonsense", headers=[("headrace.source", b"\xff")])
        log.send(source, "order")
        derived(log, topic, source, range(1), "first")
        receiver.wait_for_count(4)
    assert [each.source for each in receiver.requests] == [
        (topic, 0, 0), (topic, 0, 1), (topic, 0, 2), (source, 0, 0)
    ]  # fmt: skip


def test_topics_that_are_made_anew_are_news(any_log, receiver):
    log = any_log
    source, topic = log.topic("orders"), log.topic("large")
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    with delivering(log, sources=[source]):
        log.send(source, *range(5))
        derived(log, topic, source, range(5), "first")
        log.wait_for_counts(f"{topic}.webhook", delivered=5)
        log.admin.delete_topics([source])[source].result(20)
        log.topic("orders")
        log.send(source, *range(5))
        derived(log, topic, source, range(5), "second")
        log.wait_for_counts(f"{topic}.webhook", delivered=10, muted=0)
        log.admin.delete_topics([topic])[topic].result(20)
        log.wait_for(lambda hooks: "does not exist" in (hooks[f"{topic}.webhook"]["problem"] or ""))
        log.topic("large")
        log.send(topic, "plain")
        log.wait_for_counts(f"{topic}.webhook", delivered=11)
    assert len(set(receiver.ids)) == 11


def test_a_topic_that_is_deleted_keeps_no_other_hook_from_being_saved(log, receiver):
    doomed, other = log.topic(), log.topic("other")
    log.app.webhook(doomed, url=receiver.url, **LOCAL)
    log.app.webhook(other, url=receiver.url, **LOCAL)
    with delivering(log):
        receiver.reply = lambda request, _: _deleting(log, doomed) if request.data == "last" else OK
        log.send(doomed, "last")  # is delivered, and so to be saved, when its topic is gone
        receiver.wait_for_count(1)
        log.send(other, "x")
        log.wait_for_counts(f"{other}.webhook", delivered=1)


def _deleting(log, topic):
    log.admin.delete_topics([topic])[topic].result(20)
    return OK


def test_what_retention_took_is_told(log, receiver):
    topic = log.topic()
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    with delivering(log):
        log.send(topic, "first")
        log.wait_for_counts(f"{topic}.webhook", delivered=1)
    log.send(topic, *range(9))
    log.admin.delete_records([TopicPartition(topic, 0, 8)])[TopicPartition(topic, 0)].result(20)
    with delivering(log):
        log.wait_for_counts(f"{topic}.webhook", delivered=3, missed=7)
    assert [each.data for each in receiver.requests] == ["first", 7, 8]
    (letter,) = log.read(f"{log.app.name}.hooks.dead")
    assert b"offsets 1 to 7" in dict(letter.headers())["headrace.dead.reason"]


# --- around the hooks -----------------------------------------------------------------------------


def test_a_hook_whose_secret_is_missing_says_so_while_others_work(log, receiver):
    topic = log.topic()
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    log.app.webhook(topic, url=receiver.url, name="blind", **(LOCAL | {"secret": "env:NOT_SET_ANYWHERE"}))
    with delivering(log):
        log.send(topic, "x")
        receiver.wait_for_count(1)
        found = log.wait_for(lambda hooks: hooks["blind"]["problem"])
    assert "NOT_SET_ANYWHERE" in found["blind"]["problem"]
    assert found["blind"]["counts"]["delivered"] == 0


def test_a_hook_waits_for_a_topic_that_does_not_exist_yet(log, receiver):
    topic = f"{log.app.name}-later"
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    with delivering(log):
        log.wait_for(lambda hooks: "does not exist" in (hooks[f"{topic}.webhook"]["problem"] or ""))
        log.topic("later", partitions=2)
        log.send(topic, "x")
        receiver.wait_for_count(1)
        assert log.wait_for_counts(f"{topic}.webhook", delivered=1)["problem"] is None


def test_partitions_that_are_added_are_followed_from_their_start(log, receiver):
    from confluent_kafka.admin import NewPartitions

    topic = log.topic()
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    with delivering(log):
        log.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
        log.send(topic, "a", partition=1)
        log.send(topic, "b", partition=2)
        receiver.wait_for_count(2)


def test_a_second_deliverer_takes_over_and_the_first_ends(log, receiver):
    topic = log.topic()
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    ended = threading.Event()
    with pytest.raises(FencedError), delivering(log, ended=ended), delivering(log):
        log.send(topic, *range(5))
        log.wait_for_counts(f"{topic}.webhook", delivered=5)
        assert ended.wait(60)
    assert len(set(receiver.ids)) == 5


def test_while_a_secret_is_replaced_receivers_with_either_are_served(log, receiver, monkeypatch):
    topic, new = log.topic(), new_secret()
    monkeypatch.setenv("HOOK_SECRET", f"{new} {receiver.secret}")
    log.app.webhook(topic, url=receiver.url, **LOCAL)
    with Receiver(new) as other:
        log.app.webhook(topic, url=other.url, name="other", **LOCAL)
        with delivering(log):
            log.send(topic, "x")
            receiver.wait_for_count(1)
            other.wait_for_count(1)


def test_the_log_may_be_away_for_a_while(tmp_path, receiver):
    with BrokerProcess(tmp_path) as broker:
        log = Log(broker.bootstrap)
        topic = log.topic()
        log.app.webhook(topic, url=receiver.url, **LOCAL)
        with delivering(log):
            log.send(topic, *range(5))
            receiver.wait_for_count(5)
            broker.kill()
            broker.start()
            log.send(topic, *range(5, 10))
            receiver.wait_for_count(10)
            log.wait_for_counts(f"{topic}.webhook", delivered=10)
    assert [each.data for each in receiver.requests] == list(range(10))
