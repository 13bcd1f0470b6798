"""JSON values into columns: a bad value hurts nobody but itself."""

import datetime
import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.records.columns import Places
from headrace.streams.decode.json_values import check_fields, parse_json

FIELDS = pa.schema([("name", pa.string()), ("number", pa.int64())])


def parse(*values, fields=FIELDS):
    return parse_json(Places.of(pa.array(values, pa.binary())), fields)


def parse_one(text, kind):
    parsed = parse(b'{"it": ' + text + b"}", fields=pa.schema([("it", kind)]))
    return parsed.columns[0][0].as_py(), parsed.reasons[0].as_py()


good = st.builds(
    lambda name, number: json.dumps({"name": name, "number": number, "other": [{}]}).encode(),
    st.none() | st.text(max_size=5),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)
# Each is wrong by itself; together they would be right, were values not kept apart.
HALVES = [b"", b" ", b"{", b"}", b'{"number":', b"1}", b'{"name":"', b'"}', b"{},", b'{}, "v": {}', b"\x00"]
DOUBLES = [b"{}{}", b"{}\n{}", b"[{}]", b'{}}\n{"v":{}', b'{"number": 1, "number": 2}']
TYPES = [
    b"7",
    b'"x"',
    b'{"number": 1.5}',
    b'{"number": "1"}',
    b'{"name": 1}',
    b'{"name": "\xff"}',
    b'{"name": "a\nb"}',
]
wrong = st.sampled_from([*HALVES, *DOUBLES, *TYPES])


@given(st.lists(st.tuples(st.just(True), good) | st.tuples(st.just(False), wrong), max_size=30))
@settings(deadline=None)
def test_every_good_value_is_read_and_every_bad_one_marked_whatever_their_neighbours(values):
    parsed = parse(*[value for _, value in values])
    names, numbers = (column.to_pylist() for column in parsed.columns)
    for row, (is_good, value) in enumerate(values):
        assert parsed.reasons[row].is_valid != is_good, value
        expected = json.loads(value) if is_good else {"name": None, "number": None}
        assert (names[row], numbers[row]) == (expected["name"], expected["number"])


def test_two_halves_and_a_double_do_not_add_up_to_three_good_rows():
    parsed = parse(b'{"name":"', b'"}', b'{}}\n{"v":{}')
    assert parsed.bad_count == 3


def test_a_null_value_and_a_json_null_are_rows_of_nulls_and_not_bad():
    parsed = parse(None, b"null", b"{}")
    assert [column.to_pylist() for column in parsed.columns] == [[None] * 3, [None] * 3]
    assert parsed.bad_count == 0


def test_a_value_may_span_lines():
    assert parse(b'{\n "number": 5\n}').columns[1].to_pylist() == [5]


def test_the_reason_speaks_of_the_value_and_not_of_how_it_is_read():
    parsed = parse(b"7", b'{"number": "x"}', b'{"number": "y"}')
    assert parsed.reasons.to_pylist() == [
        "value is not an object, but number 7",
        'number: expected long, got string "x"',
        'number: expected long, got string "y"',
    ]
    assert parsed.kinds.to_pylist() == ["value is not an object", *["number: expected long"] * 2]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "value is empty"),
        (b'{"name": "a', "unexpected end of JSON at byte 11"),
        ('{"name": "ä", '.encode(), "unexpected end of JSON at byte 15"),
        (b'{"number" 1}', 'not JSON at byte 10: "1}"'),
        (b"{'number': 1}", "not JSON at byte 1: \"'number': 1}\""),
        (
            b'{"number": 1}{"number": 2}',
            "more than one JSON document in a value: the second begins at byte 13",
        ),
        (b'{"name": "\xff"}', "not UTF-8 at byte 10"),
        (b'{"number": 1.5}', "number: expected long, got number 1.5"),
        (b'{"number": [1]}', "number: expected long, got an array"),
        (b'{"number": 9223372036854775808}', "number: out of range of long: 9223372036854775808"),
        (b'{"number": 1, "number": 2}', "number: given twice"),
        (b'{"name": true}', "name: expected string, got boolean true; lenient=True reads it"),
        (b'{"name": "\\ud800"}', "name: half of a surrogate pair"),
        (b'{"number": "\\u0007\\n"}', 'number: expected long, got string "\\u0007\\n"'),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_schema(value, reason):
    parsed = parse(b'{"number": 1}', value)
    assert parsed.reasons.to_pylist() == [None, reason]
    assert reason.startswith(parsed.kinds[1].as_py()) and reason.isprintable()


@pytest.mark.parametrize(
    ("written", "unit"),
    [
        (b"1767603600", "s"),
        (b"1767603600000", "ms"),
        (b"1767603600000000", "us"),
        (b"1767603600000000000", "ns"),
    ],
)
def test_a_number_where_a_timestamp_is_declared_says_how_to_declare_it(written, unit):
    _, reason = parse_one(written, pa.timestamp("us", tz="UTC"))
    assert reason == (
        f"it: expected timestamp, got number {written.decode()}; if it is time since 1970, declare it as "
        f'long, with time_unit="{unit}"'
    )
    assert parse_one(b"17", pa.timestamp("us", tz="UTC"))[1] == "it: expected timestamp, got number 17"


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (b'"21.5"', pa.float64(), 'it: expected double, got string "21.5"; lenient=True reads it'),
        (b"3.0", pa.int32(), "it: expected int, got number 3.0; lenient=True reads it"),
        (b"7", pa.string(), "it: expected string, got number 7; lenient=True reads it"),
        (b'"warm"', pa.float64(), 'it: expected double, got string "warm"'),
        (b"3.5", pa.int32(), "it: expected int, got number 3.5"),
        (b'["7"]', pa.list_(pa.int64()), 'it[]: expected long, got string "7"; lenient=True reads it'),
    ],
)
def test_what_a_lenient_stream_would_read_says_so(text, kind, reason):
    assert parse_one(text, kind) == (None, reason)


def test_a_byte_order_mark_is_passed_over():
    values = [b'\xef\xbb\xbf{"number": %d}' % number for number in range(20)]
    assert parse(*values, b"\xef\xbb", b'{"number": 7}').columns[1].to_pylist() == [*range(20), None, 7]


@pytest.mark.parametrize("count", [1, 50])
def test_what_is_finer_than_a_microsecond_is_cut_off(count):
    texts = [f"2026-01-01T00:00:00.12345{number % 10}789+01:00" for number in range(count)]
    fields = pa.schema([("it", pa.timestamp("us", tz="UTC"))])
    values = [json.dumps({"it": text}).encode() for text in texts]
    found = parse(*values, fields=fields).columns[0].cast(pa.int64()).to_pylist()
    assert found == [1_767_222_000_123_450 + number % 10 for number in range(count)]


@pytest.mark.parametrize("count", [1, 50])  # one by one, and as a table
@pytest.mark.parametrize(
    ("kind", "first", "last", "outside"),
    [
        (
            pa.timestamp("us", tz="UTC"),
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59.999999Z",
            ["0000-12-31T23:59:59Z", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59.999999-01:00"],
        ),
        (
            pa.timestamp("us"),
            "0001-01-01T00:00:00",
            "9999-12-31T23:59:59.999999",
            ["0000-12-31T23:59:59", "9999-12-31T23:59:59.999999-01:00"],
        ),
        (pa.date32(), "0001-01-01", "9999-12-31", ["0000-12-31"]),
    ],
)
def test_a_time_outside_the_years_1_to_9999_makes_its_value_bad_and_no_other(
    count, kind, first, last, outside
):
    texts = [first, last, *outside] * count
    values = [json.dumps({"it": text}).encode() for text in texts]
    parsed = parse(*values, fields=pa.schema([("it", kind)]))
    nested = parse(
        *(b'{"it": {"each": [%s]}}' % json.dumps(text).encode() for text in texts),
        fields=pa.schema([("it", pa.struct([("each", pa.list_(kind))]))]),
    )
    bad = [text in outside for text in texts]
    assert [reason is not None for reason in parsed.reasons.to_pylist()] == bad
    assert [reason is not None for reason in nested.reasons.to_pylist()] == bad
    assert [value is None for value in parsed.columns[0].cast(pa.string()).to_pylist()] == bad


def test_maps_are_read_from_objects():
    fields = pa.schema([("labels", pa.map_(pa.string(), pa.int64()))])
    parsed = parse(
        b'{"labels": {"a": 1, "b": null}}', b'{"labels": null}', b'{"labels": {"a": "x"}}', fields=fields
    )
    assert parsed.columns[0].to_pylist() == [[("a", 1), ("b", None)], None, None]
    assert parsed.reasons.to_pylist() == [None, None, 'labels.*: expected long, got string "x"']


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (b'"2026-01-31"', pa.date32(), datetime.date(2026, 1, 31)),
        (b'["2026-01-31"]', pa.list_(pa.date32()), [datetime.date(2026, 1, 31)]),
        (b'{"day": "2026-01-31"}', pa.struct([("day", pa.date32())]), {"day": datetime.date(2026, 1, 31)}),
        (b"5", pa.float64(), 5.0),
        (b"true", pa.bool_(), True),
        (
            b'"2026-01-31T12:00:00.5+02:00"',
            pa.timestamp("us"),
            datetime.datetime(2026, 1, 31, 10, 0, 0, 500000),
        ),
    ],
)
def test_types_beyond_text_and_numbers(text, kind, expected):
    assert parse_one(text, kind) == (expected, None)


def test_a_date_that_is_none_makes_its_value_bad_and_no_other():
    parsed = parse(b'{"it": "2026-01-01"}', b'{"it": "soon"}', fields=pa.schema([("it", pa.date32())]))
    assert parsed.columns[0].to_pylist() == [datetime.date(2026, 1, 1), None]
    assert "soon" in parsed.reasons[1].as_py()


def test_a_type_that_json_cannot_give_is_refused_by_name():
    with pytest.raises(ConfigError, match="column 'span' of type month_day_nano_interval"):
        check_fields(pa.schema([("span", pa.month_day_nano_interval())]))
    with pytest.raises(ConfigError, match="column 'tags' is a map with keys of int64"):
        check_fields(pa.schema([("tags", pa.list_(pa.map_(pa.int64(), pa.string())))]))
