"""The source's options as a user gives them to Spark."""

import pytest

from headrace.client import EARLIEST, LATEST
from headrace.errors import ConfigError
from headrace.streams.options import read_options, start_time


def test_names_ignore_case_as_everywhere_in_spark():
    assert read_options({"Topic": "t", "MAX_RECORDS_PER_BATCH": "5"}).max_records_per_batch == 5


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "needs a topic"),
        ({"topic": "t", "tpoic": "x"}, "no option 'tpoic'; it has topic,"),
        ({"topic": "t", "max_fetch_bytes": "-1"}, "max_fetch_bytes='-1' is not a whole number"),
        ({"topic": "t", "max_fetch_bytes": "0"}, "must be greater than 0"),
        ({"topic": "t", "start": "now"}, "start='now' is neither"),
    ],
)
def test_a_mistake_is_named(given, reason):
    with pytest.raises(ConfigError, match=reason):
        read_options(given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", EARLIEST),
        ("Latest", LATEST),
        ("2026-01-31T12:00:00Z", 1769860800000),
        ("2026-01-31T13:00:00+01:00", 1769860800000),
        ("2026-01-31 12:00:00", 1769860800000),
    ],
)
def test_a_start_is_a_word_or_a_time(text, expected):
    assert start_time(text) == expected
