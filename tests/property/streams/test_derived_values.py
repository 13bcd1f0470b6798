"""Rows written to a derived topic are read back from it by a stream, bit by bit, whatever their types."""

import datetime
import decimal
import json
import math

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.property.examples import examples

from headrace.records.columns import Places
from headrace.streams.ddl import arrow_schema
from headrace.streams.decode.json_values import parse_json
from headrace.views.formats import dumps, rows_to_json

UTC = datetime.UTC
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1.7976931348623157e308, 0.1]

doubles = st.floats() | st.sampled_from(SPECIAL)
floats = st.floats(width=32) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 2**-149])
longs = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1])
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ['"NaN"', "NaN", "-Infinity", "\\"]
)
moments = st.datetimes(timezones=st.just(UTC)) | st.sampled_from(
    [datetime.datetime.min.replace(tzinfo=UTC), datetime.datetime.max.replace(tzinfo=UTC)]
)
decimals = st.decimals(-(10**27), 10**27, places=10, allow_nan=False, allow_infinity=False) | st.sampled_from(
    [decimal.Decimal(10**38 - 1).scaleb(-10, decimal.Context(prec=50))]
)
TYPES = {
    "double": doubles,
    "float": floats,
    "long": longs,
    "int": st.integers(-(2**31), 2**31 - 1),
    "boolean": st.booleans(),
    "string": texts,
    "decimal(38,10)": decimals,
    "timestamp": moments,
    "timestamp_ntz": moments.map(lambda moment: moment.replace(tzinfo=None)),
    "date": st.dates(),
    "array<double>": st.lists(doubles | st.none(), max_size=3),
    "array<timestamp>": st.lists(moments | st.none(), max_size=3),
    "map<string, double>": st.dictionaries(texts, doubles | st.none(), max_size=3).map(
        lambda found: list(found.items())
    ),
    "struct<x: double, text: string, deep: struct<y: array<float>, at: date>>": st.fixed_dictionaries(
        {
            "x": doubles | st.none(),
            "text": texts | st.none(),
            "deep": st.none()
            | st.fixed_dictionaries({"y": st.lists(floats, max_size=2), "at": st.dates() | st.none()}),
        }
    ),
}


def read_back(rows, *, copies):
    """The rows as a stream of the same schema reads what a derived topic has of them, so many times."""
    values = [dumps(fields).encode() for fields in rows_to_json(rows)] * copies
    for value in values:
        json.loads(value, parse_constant=pytest.fail)  # JSON as the standard has it
    parsed = parse_json(Places.of(pa.array(values, pa.binary())), rows.schema)
    assert parsed.bad_count == 0, parsed.reasons
    return pa.table(list(parsed.columns), schema=rows.schema)


def bits(table):
    """In a form in which -0.0 is not 0.0, and NaN is NaN."""
    return repr(table.to_pylist())


@pytest.mark.parametrize("kind", TYPES)
@settings(max_examples=examples(16))
@given(data=st.data())
def test_every_type_that_a_derived_topic_holds_is_read_back(kind, data):
    schema = arrow_schema(f"text string, value {kind}")
    values = data.draw(st.lists(TYPES[kind] | st.none(), min_size=1, max_size=4))
    rows = pa.table([pa.array(["NaN"] * len(values)), pa.array(values, schema.field(1).type)], schema=schema)
    assert bits(read_back(rows, copies=1)) == bits(rows)
    assert bits(read_back(rows, copies=20)) == bits(pa.concat_tables([rows] * 20))


@given(value=doubles)
@example(value=math.nan)
@example(value=-0.0)
def test_numbers_that_json_has_none_for_are_strings_that_any_consumer_can_read(value):
    (fields,) = rows_to_json(pa.table({"x": pa.array([value], pa.float64())}))
    found = json.loads(dumps(fields))["x"]
    assert isinstance(found, float) if math.isfinite(value) else found in ("NaN", "Infinity", "-Infinity")
    assert repr(float(found)) == repr(value)


@pytest.mark.parametrize(
    "value", [b'{"x": "nan"}', b'{"x": "1.5"}', b'{"x": "NaN", "y": 1}', b'{"x": "NaN"} "NaN"']
)
def test_other_strings_in_the_place_of_a_number_are_still_refused(value):
    schema = arrow_schema("x double, y string")
    assert parse_json(Places.of(pa.array([value], pa.binary())), schema).bad_count == 1
