"""Followers of topics of a real broker, into every target."""

import random
import threading
import uuid
from dataclasses import replace

import pytest
from tests.contract.derived_targets import NAMES, TARGETS, opened
from tests.integration.derived.conftest import (
    create_topic,
    following,
    has_all,
    last_of_each,
    send,
    wait_until,
)

from headrace.client import EARLIEST, LATEST, Connection, RawFetcher
from headrace.derived import Follow, FollowRun, open_target, verify_follow
from headrace.derived.changes import canonical
from headrace.errors import FencedError
from headrace.records import decode_columns


@pytest.fixture(params=NAMES)
def into(request, tmp_path):
    return TARGETS[request.param](request, tmp_path)


@pytest.fixture
def follow(bootstrap, into):
    topic = f"customers-{uuid.uuid4()}"
    create_topic(bootstrap, topic)
    return Follow(name=topic, topic=topic, into=into)


def rows_of(follow):
    target = open_target(follow)
    try:
        return {key: canonical(row) for key, row in target.rows()}
    finally:
        target.close()


def must_be(follow, model):
    target = opened(follow.into, follow.name)
    return {target.identity(key): canonical(target.stored(row)) for key, row in model.items()}


def caught_up(run, follow, model):
    wait_until(lambda: has_all(run) and rows_of(follow) == must_be(follow, model))


def verified(bootstrap, follow):
    return verify_follow(follow, Connection(bootstrap_servers=bootstrap))


def random_changes(seed, count):
    chance = random.Random(seed)
    made = []
    for number in range(count):
        key = b'{"id":%d}' % chance.randrange(40)
        row = {"id": number, "name": f"n{number}", "city": chance.choice(["Oslo", "Rome", None])}
        made.append((key, None if chance.random() < 0.25 else row))
    return made


def test_a_target_ends_with_the_newest_row_of_each_key(bootstrap, follow):
    sent = random_changes(1, 400)
    send(bootstrap, follow.topic, sent[:200])
    with following(bootstrap, follow) as run:
        caught_up(run, follow, last_of_each(sent[:200]))
        send(bootstrap, follow.topic, sent[200:])
        caught_up(run, follow, last_of_each(sent))
        assert run.status.dead == 0 and run.status.repairs == 0
    checked = verified(bootstrap, follow)
    assert checked.is_equal and checked.rows == len(last_of_each(sent)) and not checked.building


def test_a_follower_that_comes_back_goes_on_from_its_position(bootstrap, follow):
    sent = random_changes(2, 200)
    send(bootstrap, follow.topic, sent[:100])
    with following(bootstrap, follow) as run:
        caught_up(run, follow, last_of_each(sent[:100]))
    send(bootstrap, follow.topic, sent[100:])
    with following(bootstrap, follow) as run:
        caught_up(run, follow, last_of_each(sent))
        assert run.status.upserts + run.status.deletes <= 40  # it has read the second half only


def test_verify_names_the_rows_that_differ_and_rebuild_corrects_them(bootstrap, follow):
    sent = [(b'{"id":%d}' % each, {"id": each, "name": "x"}) for each in range(50)]
    send(bootstrap, follow.topic, sent)
    with following(bootstrap, follow) as run:
        caught_up(run, follow, dict(sent))
    target = open_target(follow)
    state = target.state()
    wrong = {sent[1][0]: {"id": 1, "name": "tampered"}, b'{"id":99}': {"id": 99}}
    target.apply(wrong, [sent[2][0]], state, lambda *_: None)
    target.close()
    found = {each.identity: each.kind for each in verified(bootstrap, follow).differences}
    known = opened(follow.into, follow.name).identity
    assert found == {
        known(sent[1][0]): "different",
        known(sent[2][0]): "missing",
        known(b'{"id":99}'): "extra",
    }
    with following(bootstrap, follow) as run:
        run.rebuild("please")
        wait_until(lambda: run.status.repairs == 1)
        caught_up(run, follow, dict(sent))
    assert verified(bootstrap, follow).is_equal
    with following(bootstrap, follow, request="please") as run:
        wait_until(lambda: has_all(run))
        assert run.status.repairs == 0  # the request was met already


def test_rows_without_a_position_are_brought_in_order_from_the_log(bootstrap, follow):
    sent = [(b'{"id":%d}' % each, {"id": each}) for each in range(20)]
    send(bootstrap, follow.topic, sent)
    target = open_target(follow)
    stale = replace(_state(follow), topic="another", topic_id="gone", positions={0: 9})
    target.claim(stale)
    target.apply({b'{"id":7}': {"id": "old"}, b'{"id":77}': {"id": 77}}, (), stale, lambda *_: None)
    target.close()
    messages = []
    with following(bootstrap, follow, on_message=messages.append) as run:
        caught_up(run, follow, dict(sent))
        assert run.status.repairs == 1
    assert any("reflects the topic another" in each for each in messages)


def _state(follow):
    from headrace.derived.state import FollowState

    return FollowState(topic=follow.topic, topic_id="", owner="nobody")


def test_the_older_of_two_followers_stops(bootstrap, follow):
    send(bootstrap, follow.topic, [(b"1", {"id": 1})])
    connection = Connection(bootstrap_servers=bootstrap)
    first, ended = FollowRun(follow, open_target(follow), connection), []

    def until_fenced():
        try:
            first.run()
        except FencedError as error:
            ended.append(error)

    thread = threading.Thread(target=until_fenced)
    thread.start()
    wait_until(lambda: has_all(first))
    with following(bootstrap, follow) as second:
        wait_until(lambda: has_all(second))
        send(bootstrap, follow.topic, [(b"2", {"id": 2})])
        thread.join(60)
        assert len(ended) == 1
        caught_up(second, follow, {b"1": {"id": 1}, b"2": {"id": 2}})


def test_what_cannot_be_read_becomes_a_dead_letter_and_the_rest_goes_on(bootstrap, into):
    name = f"poisoned-{uuid.uuid4()}"
    follow = Follow(name=name, topic=name, into=into)
    create_topic(bootstrap, follow.topic, **{"cleanup.policy": "delete"})  # which takes records without a key
    poison = [(b"1", b"\xff{"), (b"2", b"[1]"), (None, {"id": 3})]
    send(bootstrap, follow.topic, [*poison, (b"4", {"id": 4})])
    with following(bootstrap, follow) as run:
        caught_up(run, follow, {b"4": {"id": 4}})
        assert run.status.dead == 3
    reasons = [dict(each)["headrace.dead.reason"].decode() for each in headers_of(bootstrap, follow.dead)]
    assert sorted(each.split(":")[0] for each in reasons) == [
        "the record has no key, so its row cannot be distinguished from others",
        "the value is JSON, but not an object",
        "the value is not JSON",
    ]


def headers_of(bootstrap, topic):
    with RawFetcher(Connection(bootstrap_servers=bootstrap)) as fetcher:
        start, end = fetcher.offsets(topic, EARLIEST)[0], fetcher.offsets(topic, LATEST)[0]
        return [
            [(each["key"], each["value"]) for each in headers]
            for run in fetcher.fetch(topic, 0, start, end)
            for headers in decode_columns(run, columns=("headers",))["headers"].to_pylist()
        ]


def test_verify_is_right_while_the_follower_is_at_work(bootstrap, follow):
    sent, stop = [], threading.Event()

    def write():
        chance = random.Random(9)
        while not stop.is_set():
            changes = random_changes(chance.random(), 50)
            sent.extend(changes)
            send(bootstrap, follow.topic, changes)

    writer = threading.Thread(target=write)
    with following(bootstrap, follow) as run:
        wait_until(lambda: run.status.state == "following")
        writer.start()
        try:
            wait_until(lambda: run.status.upserts > 0)
            for _ in range(3):
                assert verified(bootstrap, follow).differences == ()
        finally:
            stop.set()
            writer.join()
        caught_up(run, follow, last_of_each(sent))
