"""Values read one by one, strictly and leniently, against the parser of whole blocks."""

import json
from decimal import ROUND_HALF_EVEN, Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples

from headrace.records.columns import Places
from headrace.streams.decode.json_documents import Fault, read_document
from headrace.streams.decode.json_values import _parse_block, parse_json

UTC_TIME = pa.timestamp("us", tz="UTC")
SCALARS = [
    pa.bool_(),
    pa.int8(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.decimal128(6, 2),
    UTC_TIME,
    pa.timestamp("us"),
]
kinds = st.sampled_from(
    [*SCALARS, pa.list_(pa.int64()), pa.struct([("a", pa.float64()), ("b", pa.list_(pa.string()))])]
)
numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-(10**6), 10**6, places=4).map(str),
    st.sampled_from(["-0", "1e2", "1E+2", "3.0", "0.5e1", "1e400", "1.005", "9999.995", "127", "128"]),
)
times = st.one_of(
    st.datetimes().map(lambda at: at.isoformat()),
    st.datetimes().map(lambda at: at.isoformat(" ") + "Z"),
    st.dates().map(str),
    st.sampled_from(
        [
            "2026-01-01T10",
            "2026-01-01T10:11+02",
            "2026-01-01T10:11:12.1-0130",
            "2026-01-01T10:11:12+24:00",
            "2026-02-30",
            "2026-01-01T24:00:00",
            "2026-01-01t10:11:12z",
            "2026-01-01T10:11:12.",
            "yesterday",
        ]
    ),
)
texts = st.one_of(times, numbers, st.text(max_size=4), st.sampled_from(["true", "False", "NaN", " 7 "]))
scalars = st.one_of(
    numbers, texts.map(json.dumps), st.sampled_from(["null", "true", "false", '"\\ud800"', '"a\\nb"'])
)
documents = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda each: f"[{','.join(each)}]"),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda each: "{" + ", ".join(f'"{name}": {value}' for name, value in each.items()) + "}"
        ),
    ),
    max_leaves=4,
)


def by_blocks(raw, fields):
    try:
        return _parse_block(pa.array([raw], pa.binary()), fields)
    except pa.ArrowInvalid:
        return None


def by_document(raw, fields, **how):
    try:
        return pa.array([read_document(raw, fields, **how)], pa.struct(list(fields)))
    except Fault as fault:
        assert fault.text.startswith(fault.kind) and len(fault.text) < 300 and fault.text.isprintable()
        return None


@given(kinds, documents)
@settings(max_examples=examples(160), deadline=None)
def test_what_the_parser_of_blocks_reads_is_read_alike_strictly_and_leniently(kind, text):
    raw, fields = b'{"it": ' + text.encode() + b"}", pa.schema([("it", kind)])
    expected = by_blocks(raw, fields)
    if expected is not None:
        assert by_document(raw, fields).equals(expected)
        assert by_document(raw, fields, lenient=True).equals(expected)


@given(kinds, documents)
@settings(max_examples=examples(160), deadline=None)
def test_what_the_parser_of_blocks_refuses_is_refused_strictly(kind, text):
    raw, fields = b'{"it": ' + text.encode() + b"}", pa.schema([("it", kind)])
    if by_blocks(raw, fields) is None:
        assert by_document(raw, fields) is None


def naive(kind, text):
    """What a lenient stream makes of a number, by the rules as they are written down; None for a fault."""
    exact = Decimal(text)
    if pa.types.is_integer(kind):
        limit = 1 << kind.bit_width - 1
        return int(exact) if exact == int(exact) and -limit <= exact < limit else None
    if pa.types.is_decimal(kind):
        rounded = exact.quantize(Decimal("0.01"), ROUND_HALF_EVEN)
        return rounded if abs(rounded) < 10**4 else None
    return text if pa.types.is_string(kind) else float(text)


@given(
    st.sampled_from([pa.int8(), pa.int64(), pa.float64(), pa.string(), pa.decimal128(6, 2)]),
    st.decimals(-(10**6), 10**6, places=4).map(str) | st.integers(-(2**70), 2**70).map(str),
    st.booleans(),
)
@settings(max_examples=examples(120), deadline=None)
def test_a_lenient_stream_takes_numbers_as_a_naive_reader_would(kind, text, is_quoted):
    raw = json.dumps({"it": text}).encode() if is_quoted else b'{"it": %s}' % text.encode()
    parsed = parse_json(Places.of(pa.array([raw], pa.binary())), pa.schema([("it", kind)]), lenient=True)
    assert parsed.columns[0][0].as_py() == naive(kind, text)
    assert parsed.reasons[0].is_valid == (naive(kind, text) is None)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (pa.bool_(), '"True"', True),
        (pa.int32(), '"3.0"', 3),
        (pa.int32(), "1e3", 1000),
        (pa.int32(), '"3.5"', None),
        (pa.float64(), '" 21.5 "', 21.5),
        (pa.float64(), '""', None),
        (pa.decimal128(6, 2), "1.005", Decimal("1.00")),
        (pa.decimal128(6, 2), "1.015", Decimal("1.02")),
        (pa.string(), "1.50", "1.50"),
        (pa.string(), "false", "false"),
        (pa.string(), "{}", None),
        (UTC_TIME, '"2026-01-01t00:00:00z"', 1_767_225_600_000_000),
        (UTC_TIME, "1767225600", None),
    ],
)
def test_what_a_lenient_stream_reads(kind, text, expected):
    found = by_document(b'{"it": %s}' % text.encode(), pa.schema([("it", kind)]), lenient=True)
    if found is not None and pa.types.is_timestamp(kind):
        found = pa.array([{"it": found.field("it").cast(pa.int64())[0].as_py()}])
    assert (None if found is None else found[0].as_py()["it"]) == expected
