"""Record headers of our own: what is written is read again, and what others write does no harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records import (
    DEAD_LETTER_PREFIXES,
    LATE_PREFIX,
    QUEUE_PREFIX,
    STREAM_PREFIX,
    encode_headers,
    format_source,
    last_header,
    parse_source,
    read_headers,
)


def test_headers_are_read_as_they_are_written():
    headers = encode_headers(LATE_PREFIX, {"view": "revenue", "late_by_us": 7})
    assert headers == (("headrace.late.view", b"revenue"), ("headrace.late.late_by_us", b"7"))
    assert read_headers(headers, LATE_PREFIX) == {"view": "revenue", "late_by_us": "7"}


def test_only_headers_that_begin_with_a_prefix_are_read_and_of_several_the_last():
    headers = [
        ("reason", b"none of ours"),
        (f"{STREAM_PREFIX}reason", b"first"),
        (f"{QUEUE_PREFIX}reason", b"last"),
        (f"{STREAM_PREFIX}error", None),
        (f"{LATE_PREFIX}view", b"of another kind"),
    ]
    assert read_headers(headers, DEAD_LETTER_PREFIXES) == {"reason": "last"}


def test_bytes_that_are_not_text_are_replaced():
    assert read_headers([(f"{LATE_PREFIX}view", b"\xff")], LATE_PREFIX) == {"view": "\ufffd"}


def test_of_several_headers_of_one_name_the_last_counts():
    headers = [("a", b"1"), ("b", b"2"), ("a", None)]
    assert (last_header(headers, "a"), last_header(headers, "b"), last_header(headers, "c")) == (
        None,
        b"2",
        None,
    )


@given(st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True), st.integers(0), st.integers(0))
def test_a_source_is_read_as_it_is_written(topic, partition, offset):
    text = format_source(topic, partition, offset)
    assert parse_source(text.encode()) == (topic, partition, offset)


@pytest.mark.parametrize(
    "text",
    [b"", b"orders", b"orders:1", b":1:2", b"orders:x:2", b"orders:1:-2", b"orders:1:2:3", b"o:\xd9\xa3:1"],
)
def test_any_other_text_is_no_source(text):
    assert parse_source(text) is None
