"""The source's options as a user gives them to Spark."""

import pytest

from headrace.errors import ConfigError
from headrace.streams.source.options import read_options


def test_names_ignore_case_as_everywhere_in_spark():
    assert read_options({"Topic": "t", "MAX_RECORDS_PER_BATCH": "5"}).max_records_per_batch == 5


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "needs a topic"),
        ({"topic": "t", "tpoic": "x"}, "no option 'tpoic'; it has .*topic,"),
        ({"topic": "t", "max_fetch_bytes": "-1"}, "max_fetch_bytes='-1' is not a whole number"),
        ({"topic": "t", "max_fetch_bytes": "0"}, "must be greater than 0"),
        ({"topic": "t", "start": "now"}, "start='now' is neither"),
    ],
)
def test_a_mistake_is_named(given, reason):
    with pytest.raises(ConfigError, match=reason):
        read_options(given)
