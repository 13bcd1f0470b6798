"""Records as lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.records.lines import (
    InputRecord,
    ReadRecord,
    parse_json_line,
    parse_text_line,
    record_to_json,
)
from headrace.errors import RequestError

payloads = st.none() | st.binary()
names = st.text(st.characters(exclude_categories=["Cs"]))
records = st.builds(
    ReadRecord,
    topic=st.just("orders"),
    partition=st.integers(0, 100),
    offset=st.integers(0, 2**62),
    timestamp_ms=st.integers(1, 2**50),
    timestamp_type=st.sampled_from(["create", "append"]),
    key=payloads,
    value=payloads,
    headers=st.lists(st.tuples(names, payloads)).map(tuple),
)


@given(records)
def test_what_tail_prints_produce_sends_again_byte_for_byte(record):
    again = parse_json_line(json.dumps(record_to_json(record)).encode())
    assert again == InputRecord(
        key=record.key,
        value=record.value,
        headers=record.headers,
        timestamp_ms=record.timestamp_ms,
        partition=record.partition,
    )


def test_a_record_without_timestamp_is_printed_and_sent_without_one():
    read = ReadRecord(
        topic="t",
        partition=0,
        offset=0,
        timestamp_ms=-1,
        timestamp_type="create",
        key=None,
        value=b"",
        headers=(),
    )
    printed = record_to_json(read)
    assert printed["timestamp"] is None
    assert parse_json_line(json.dumps(printed).encode()).timestamp_ms is None


def test_a_line_is_a_value():
    assert parse_text_line(b"a=b", None) == InputRecord(value=b"a=b")


def test_a_line_is_split_at_the_first_separator():
    assert parse_text_line(b"k=v=w", b"=") == InputRecord(key=b"k", value=b"v=w")


def test_a_line_without_the_separator_is_refused():
    with pytest.raises(RequestError, match="has no key separator"):
        parse_text_line(b"plain", b"=")


def test_a_value_that_is_no_string_is_sent_as_its_json():
    assert parse_json_line('{"value": {"a": [1, "ü"]}}'.encode()).value == '{"a":[1,"ü"]}'.encode()


def test_headers_may_be_an_object():
    assert parse_json_line(b'{"headers": {"a": "1", "b": null}}').headers == (("a", b"1"), ("b", None))


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b"{", "not valid JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"vaule": "x"}', "unknown field 'vaule'"),
        (b'{"partition": -1}', "partition"),
        (b'{"partition": true}', "partition"),
        (b'{"timestamp_ms": 1.5}', "timestamp_ms"),
        (b'{"timestamp_ms": 0}', "timestamp_ms: 0 cannot be sent"),
        (b'{"key": "zz", "key_encoding": "hex"}', "key"),
        (b'{"value": "x", "value_encoding": "base64"}', "neither text nor hex"),
        (b'{"value": "\\ud800"}', "value"),
        (b'{"headers": "x"}', "headers"),
        (b'{"headers": [{"value": "x"}]}', "headers"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_a_bad_line_is_refused_with_the_field_at_fault(line, named):
    with pytest.raises(RequestError, match=named):
        parse_json_line(line)
