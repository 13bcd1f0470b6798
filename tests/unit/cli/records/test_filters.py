"""Which records a tail shows."""

import pytest

from headrace.cli.records.filters import Filter, compile_pattern
from headrace.errors import RequestError


def passes(wanted, key=b"user-1", value=b"hello world", timestamp_ms=1_000):
    return wanted.passes(key=key, value=value, timestamp_ms=timestamp_ms)


def test_without_conditions_every_record_passes():
    assert passes(Filter())
    assert passes(Filter(), key=None, value=None, timestamp_ms=-1)


def test_a_key_must_be_equal_and_a_prefix_must_begin_it():
    assert passes(Filter(key=b"user-1"))
    assert not passes(Filter(key=b"user"))
    assert passes(Filter(key_prefix=b"user"))
    assert not passes(Filter(key_prefix=b"ser"))


def test_a_record_without_key_or_value_meets_no_condition_on_it():
    assert not passes(Filter(key=b""), key=None)
    assert not passes(Filter(key_prefix=b""), key=None)
    assert not passes(Filter(contains=""), value=None)


def test_an_empty_key_can_be_asked_for():
    assert passes(Filter(key=b""), key=b"")


def test_text_is_found_literally_and_a_pattern_as_an_expression():
    assert passes(Filter(contains="lo wo"))
    assert not passes(Filter(contains="h.*o"))
    assert passes(Filter(pattern=compile_pattern("h.*d$")))


def test_text_is_found_beside_bytes_that_are_no_text():
    assert passes(Filter(contains="needle"), value=b"\xff\xfeneedle")


def test_times_include_the_beginning_and_exclude_the_end():
    wanted = Filter(since_ms=1_000, before_ms=2_000)
    assert [passes(wanted, timestamp_ms=at) for at in (999, 1_000, 1_999, 2_000)] == [
        False,
        True,
        True,
        False,
    ]


def test_every_condition_must_be_met():
    assert not passes(Filter(key=b"user-1", contains="absent"))


def test_a_bad_expression_is_refused_by_name():
    with pytest.raises(RequestError, match=r"--match '\(' is not a regular expression"):
        compile_pattern("(")
