"""A stream's spec is refused before anything is read if it makes no sense."""

import pickle

import pytest

from headrace.errors import ConfigError
from headrace.streams.spec import PROCESSING_TIME, StreamSpec, rows_schema, value_fields

RESERVED = ["_partition", "_offset", "_timestamp", "_event_time", "_watermark"]


def test_rows_have_the_named_columns_and_then_the_reserved_ones():
    spec = StreamSpec(
        topic="t", schema="_offset long, user string, _key binary, at timestamp", event_time="at"
    )
    assert rows_schema(spec).names == ["user", "_key", "at", *RESERVED]
    assert value_fields(spec).names == ["user", "at"]


def test_a_raw_stream_has_columns_about_the_record_only():
    spec = StreamSpec(topic="t", schema="_value binary", decoder="raw")
    assert rows_schema(spec).names == ["_value", *RESERVED]


def test_a_spec_travels():
    spec = StreamSpec(topic="t", schema="at long", event_time="at", lateness_us=5)
    assert pickle.loads(pickle.dumps(spec)) == spec


class Column:
    """As PySpark's: to compare one gives another, which has no truth."""

    def __init__(self, name):
        self._name = name

    def __eq__(self, other):
        return Column(f"({self._name} = {other})")

    def __hash__(self):
        return 0

    def __bool__(self):
        raise TypeError("Cannot convert column into bool")

    def __str__(self):
        return f"Column<'{self._name}'>"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"topic": ""}, "needs a topic"),
        ({"decoder": "avro"}, "decoder='avro' is not 'json' or 'raw'"),
        ({"on_gap": "ignore"}, "on_gap='ignore' is not 'fail' or 'skip'"),
        ({"lateness_us": -1}, "lateness_us=-1 is negative"),
        ({"schema": "at long", "event_time": "when"}, "event_time='when' is not a field"),
        ({"schema": "_offset long", "event_time": "_offset"}, "event_time='_offset' is not a field"),
        ({"schema": "at string", "event_time": "at"}, "declare it as timestamp"),
        ({"schema": "at string", "event_time": "to_timestamp(ta)"}, "there is no column 'ta'; there is at"),
        ({"schema": "at string", "event_time": object()}, "event_time is a object, and must be text: event"),
        (
            {"schema": "at timestamp", "event_time": Column("at")},
            'event_time is a Column, and must be text: event_time="at"$',
        ),
        (
            {"schema": "at timestamp", "event_time": Column("(at - 1)")},
            r'must be text: event_time="to_timestamp\(concat',
        ),
        ({"schema": "at long", "event_time": "at", "sent_at": "at + 1"}, r"sent_at='at \+ 1' is not a field"),
        ({"schema": "at long", "sent_at": "at"}, "name that as event_time"),
        ({"schema": "at long", "sent_at": "at", "event_time": PROCESSING_TIME}, "name that as event_time"),
        ({"schema": "_offset string"}, "column '_offset' is of type int64, not string"),
        ({"schema": "_corrupt string"}, "no column '_corrupt' about a record.*dead-letter topic"),
        ({"schema": "a long", "decoder": "raw"}, "decoder='raw' reads no fields"),
        ({"start": "soon"}, "start='soon' is neither"),
    ],
)
def test_a_mistake_is_named(fields, reason):
    with pytest.raises(ConfigError, match=reason):
        StreamSpec(**{"topic": "t", **fields})
