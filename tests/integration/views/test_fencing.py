"""Fencing by the beginning of a name: whoever has such a name open must take it over again."""

import uuid

import pytest
from reading import read
from topics import create_topic

from headrace.client.write import OutputRecord, TransactionalProducer, fence
from headrace.errors import FencedError


@pytest.fixture
def producers(log):
    """Opens producers under names of this test's own, and closes them."""
    opened = []

    def take_over(name):
        found = TransactionalProducer(log, name)
        found.take_over()
        opened.append(found)
        return found

    yield take_over
    for each in opened:
        each.close()


def test_all_producers_whose_ids_begin_alike_are_fenced_and_no_other_is(log, producers):
    topic, app = create_topic(log), uuid.uuid4().hex
    slots = [producers(f"{app}:{number}") for number in range(2)]
    other = producers(f"{app}-more:0")
    for each in (*slots, other):
        each.write([OutputRecord(topic, None, b"before")])
    assert fence(log, f"headrace-{app}:") == [f"headrace-{app}:0", f"headrace-{app}:1"]
    for each in slots:
        with pytest.raises(FencedError):
            each.write([OutputRecord(topic, None, b"after")])
    other.write([OutputRecord(topic, None, b"other")])
    assert [each["value"] for each in read(log, topic)] == [b"before"] * 3 + [b"other"]


def test_a_transaction_that_is_open_is_aborted_before_its_producer_is_fenced(log, producers):
    topic, app = create_topic(log), uuid.uuid4().hex
    slot = producers(f"{app}:0")

    def fence_once_written(_):
        fence(log, f"headrace-{app}:")
        return ()

    with pytest.raises(FencedError):
        slot.transact([OutputRecord(topic, None, b"half")], fence_once_written)
    assert read(log, topic) == []


def test_where_no_such_id_is_known_nothing_is_fenced(log):
    assert fence(log, f"headrace-{uuid.uuid4().hex}:") == []
