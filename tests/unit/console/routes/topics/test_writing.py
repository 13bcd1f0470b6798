import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.console.problems import ProblemError
from headrace.console.routes.topics.writing import answer_of, producer_record
from headrace.console.write.json_bodies import dump_json, parse_json_body
from headrace.console.write.tokens import decode_token
from headrace.console.write.writer import ProducerRecord, RecordMetadata
from headrace.errors import RetriableError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_json_goes_to_the_log_as_it_came(value):
    body = json.dumps(value).encode()
    try:
        kept = dump_json(parse_json_body(body))
    except ProblemError:
        assert "\\ud" in body.decode()  # a lone surrogate
    else:
        assert json.loads(kept) == value


def test_whole_numbers_keep_all_their_digits():
    assert (
        dump_json(parse_json_body(b'{"a": 123456789012345678901234567890}'))
        == b'{"a":123456789012345678901234567890}'
    )


@pytest.mark.parametrize("body", [b"NaN", b"[Infinity]", b"1e400", b"", b"\xff", b"{'a': 1}", b"[" * 100_000])
def test_what_cannot_be_kept_as_json_is_refused(body):
    with pytest.raises(ProblemError):
        parse_json_body(body)


def test_a_record_with_everything():
    given = {
        "value": {"a": [1, None]},
        "key_base64": "/w==",
        "headers": {"trace": "x", "none": None},
        "partition": 2,
        "timestamp": "2026-01-01T00:00:00Z",
    }
    assert producer_record(given, "it") == ProducerRecord(
        value=b'{"a":[1,null]}',
        key=b"\xff",
        headers=(("trace", b"x"), ("none", None)),
        partition=2,
        timestamp_ms=1_767_225_600_000,
    )


def test_a_null_value_is_a_tombstone():
    assert producer_record({"value": None, "key": "k"}, "it") == ProducerRecord(value=None, key=b"k")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (7, "object"),
        ({}, "value"),
        ({"value": 1, "vlaue": 2}, "vlaue"),
        ({"value": 1, "value_base64": "AA=="}, "both"),
        ({"value_base64": "?"}, "base64"),
        ({"value_base64": 7}, "base64"),
        ({"value": 1, "key": 7}, "key"),
        ({"value": 1, "key": "\ud800"}, "Unicode"),
        ({"value": "\ud800"}, "not valid JSON"),
        ({"value": 1, "headers": []}, "headers"),
        ({"value": 1, "headers": {"a": 1}}, "headers"),
        ({"value": 1, "headers": {"": "x"}}, "header"),
        ({"value": 1, "partition": -1}, "partition"),
        ({"value": 1, "partition": True}, "partition"),
        ({"value": 1, "partition": "0"}, "partition"),
        ({"value": 1, "timestamp": 5}, "timestamp"),
        ({"value": 1, "timestamp": "yesterday"}, "timestamp"),
        ({"value": 1, "timestamp": "1969-01-01T00:00:00Z"}, "1970"),
    ],
)
def test_what_is_wrong_with_a_record_is_named(given, named):
    with pytest.raises(ProblemError, match=named) as refused:
        producer_record(given, "record 3")
    assert refused.value.problem.status == 400


def test_the_token_is_of_the_records_that_were_written():
    outcomes = [RecordMetadata(0, 7), RetriableError("away"), RecordMetadata(1, 3), RecordMetadata(0, 5)]
    answer = answer_of("orders", outcomes)
    assert decode_token(answer["token"]) == {"orders": {0: 8, 1: 4}}
    assert [list(each) for each in answer["records"]] == [
        ["partition", "offset"],
        ["error"],
        ["partition", "offset"],
        ["partition", "offset"],
    ]
    assert answer["records"][1]["error"]["status"] == 503


def test_a_token_of_nothing_is_a_token():
    assert decode_token(answer_of("orders", [RetriableError("away")])["token"]) == {}
