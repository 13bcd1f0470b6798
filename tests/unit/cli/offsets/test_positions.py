"""Positions in a log, and topic[:partition]."""

import pytest

from headrace.cli.offsets.positions import parse_position, parse_selector
from headrace.client.topics.positions import Bounds, Position, PositionKind
from headrace.errors import RequestError

LOG = Bounds(start=100, end=200)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", Position(PositionKind.EARLIEST)),
        ("latest", Position(PositionKind.LATEST)),
        ("17", Position(PositionKind.OFFSET, 17)),
        ("-1s", Position(PositionKind.TIME, 4_000)),
        ("1970-01-01T00:00:01Z", Position(PositionKind.TIME, 1_000)),
    ],
)
def test_a_position_is_earliest_latest_an_offset_or_a_time(text, expected):
    assert parse_position(text, now_ms=5_000) == expected


def test_another_word_is_refused_by_name():
    with pytest.raises(RequestError, match="'newest' is not earliest"):
        parse_position("newest", now_ms=0)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (Position(PositionKind.EARLIEST), 100),
        (Position(PositionKind.LATEST), 200),
        (Position(PositionKind.OFFSET, 150), 150),
        (Position(PositionKind.OFFSET, 7), 100),
        (Position(PositionKind.OFFSET, 7_000), 200),
        (Position(PositionKind.LAST, 10), 190),
        (Position(PositionKind.LAST, 0), 200),
        (Position(PositionKind.LAST, 1_000), 100),
    ],
)
def test_a_position_means_an_offset_inside_the_log(position, expected):
    assert position.offset_in(LOG) == expected


def test_a_time_means_the_first_record_at_or_after_it():
    assert Position(PositionKind.TIME, 1).offset_in(LOG, 120) == 120


def test_a_time_after_the_last_record_means_the_log_end():
    assert Position(PositionKind.TIME, 1).offset_in(LOG, None) == 200


def test_a_selector_names_a_topic_or_one_of_its_partitions():
    assert parse_selector("orders") == ("orders", None)
    assert parse_selector("orders:3") == ("orders", 3)


@pytest.mark.parametrize("text", ["", ":3", "orders:", "orders:x", "orders:-1", "orders:1:2"])
def test_a_selector_without_topic_or_with_a_bad_partition_is_refused(text):
    with pytest.raises(RequestError, match="TOPIC:PARTITION"):
        parse_selector(text)
