"""What receivers get: bodies, ids, texts."""

import base64
import json

import pytest

from headrace.hooks.log.records import HookRecord, message_id, source_of
from headrace.hooks.send.mail import fill
from headrace.hooks.send.messages import record_fields, time_text, webhook_body
from headrace.records import SourceRecord, source_header


def record(value, key=b"k", headers=()):
    return HookRecord(
        topic="large",
        partition=1,
        offset=7,
        timestamp_ms=1_700_000_000_123,
        key=key,
        value=value,
        headers=headers,
    )


def body(value, key=b"k"):
    return json.loads(webhook_body(record(value, key), SourceRecord("orders", 0, 41)))


def test_a_body_has_type_time_data_key_and_source():
    assert body(b'{"amount": 1.10}') == {
        "type": "large",
        "timestamp": "2023-11-14T22:13:20.123Z",
        "data": {"amount": 1.1},
        "key": "k",
        "source": {"topic": "orders", "partition": 0, "offset": 41},
    }


def test_numbers_keep_every_digit():
    value = b'{"a":1.10,"b":123456789012345678901234567890,"c":0.1000000000000000055511151231257827}'
    assert value in webhook_body(record(value), SourceRecord("orders", 0, 41))


@pytest.mark.parametrize(
    ("value", "data", "encoding"),
    [
        (b"plain text", "plain text", None),
        (None, None, None),
        (b"", "", None),
        (b"[1, NaN]", "[1, NaN]", None),
        (b"\xff\x00", base64.b64encode(b"\xff\x00").decode(), "base64"),
    ],
)
def test_what_is_no_json_is_text_or_base64(value, data, encoding):
    assert body(value)["data"] == data
    assert body(value).get("data_encoding") == encoding
    assert body(b"1", key=value)["key"] == data
    assert body(b"1", key=value).get("key_encoding") == encoding


@pytest.mark.parametrize("timestamp_ms", [-1, 0, 2**62])
def test_absurd_times_are_shown_as_some_time(timestamp_ms):
    assert time_text(timestamp_ms).endswith("Z")


def test_a_source_comes_back_from_its_header():
    for source in (SourceRecord("orders", 0, 41), SourceRecord("a.b-c_d", 12, 2**62, 3)):
        assert source_of(record(b"", headers=(source_header(source),))) == source


@pytest.mark.parametrize(
    "value", [b"", b"orders", b"orders:0", b"orders:0:-1", b"o s:0:1", b"\xff:0:1", None]
)
def test_a_source_that_cannot_be_read_is_none(value):
    assert source_of(record(b"", headers=(("headrace.source", value),))) is None


def test_an_id_depends_on_everything_that_makes_a_record_itself():
    ids = {
        message_id(followed, topic_id, SourceRecord(topic, partition, offset, row))
        for followed in ("large", "small")
        for topic_id in ("A", "B")
        for topic in ("orders",)
        for partition in (0, 1)
        for offset in (1, 11)
        for row in (0, 1)
    }
    assert len(ids) == 32


def test_ids_stay_what_they_are_in_all_versions():
    assert message_id("large", "A", SourceRecord("orders", 0, 41)) == "msg_f3b33d5910d10d46a61aab13f4fe3e3c"


def test_templates_hold_names_and_nothing_else():
    fields = record_fields(
        record(b'{"id": 7, "who": {"name": "Zo\xc3\xab"}, "note": null, "_key": "theirs"}')
    )
    assert fill("{id}/{who.name}/{note}/{_key}/{_topic}/{{id}}", fields) == "7/Zoë//k/large/{id}"
    assert fill("{missing} {who.missing} {id.x}", fields) == "{missing} {who.missing} {id.x}"
    assert fill("{who}", fields) == '{"name": "Zoë"}'
    assert fill("{__class__} {id.__class__} {0} {id!r} {id:>99}", fields) == (
        "{__class__} {id.__class__} {0} {id!r} {id:>99}"
    )


def test_values_are_not_templates():
    assert fill("{a}", {"a": "{b}", "b": "never"}) == "{b}"
