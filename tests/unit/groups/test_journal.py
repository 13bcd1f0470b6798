"""Events as records: what a person reads, and what a newer or broken record does."""

import orjson
import pytest

from headrace.errors import CorruptionError
from headrace.groups.events import ConsumerMemberRemoved, GroupRemoved, OffsetRemoved
from headrace.groups.journal import decode, encode


@pytest.mark.parametrize(
    "event",
    [
        GroupRemoved(group_id="g"),
        ConsumerMemberRemoved(group_id="g", member_id="m"),
        OffsetRemoved(group_id="g", topic="t", partition=3),
    ],
)
def test_a_removal_is_a_tombstone(event):
    key, value = encode(event)
    assert value is None
    assert decode(key, value) == event


def test_a_key_can_be_read_by_a_person():
    key, _ = encode(OffsetRemoved(group_id="g", topic="t", partition=3))
    assert orjson.loads(key) == {"v": 1, "kind": "offset", "group": "g", "topic": "t", "partition": 3}


def test_a_record_of_a_newer_version_is_refused():
    with pytest.raises(CorruptionError, match="start a newer one"):
        decode(b'{"v":2,"kind":"group","group":"g"}', None)


@pytest.mark.parametrize("key", [None, b"", b"[]", b'{"v":1}', b'{"v":1,"kind":"x","group":"g"}', b"\xff"])
def test_a_record_that_is_none_of_ours_is_refused(key):
    with pytest.raises(CorruptionError, match="no record of groups"):
        decode(key, None)


def test_a_member_of_a_record_from_before_members_had_users_has_none():
    nothing = {"assigned": {}, "revoking": {}, "target": {}, "topics": [], "regex": ".*", "assignor": None}
    about = {"instance": None, "rack": None, "client": "c", "host": "/h", "rebalance_timeout_ms": 1}
    value = {"v": 1, **about, **nothing, "epoch": 1, "previous_epoch": 0, "state": "stable"}
    key = {"v": 1, "kind": "member", "group": "g", "member": "m"}
    event = decode(orjson.dumps(key), orjson.dumps(value))
    assert event.user is None and event.topic_regex == ".*"
