"""JSON values into columns: a bad value hurts nobody but itself."""

import datetime
import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.records.columns import Places
from headrace.streams.json_values import check_fields, parse_json

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
    reasons = parse(b"7", b'{"number": "x"}').reasons.to_pylist()
    assert reasons == [
        "The value changed from object to number",
        "Column(/number) changed from number to string",
    ]


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
    with pytest.raises(ConfigError, match="column 'tags' of type map"):
        check_fields(pa.schema([("tags", pa.map_(pa.string(), pa.string()))]))
