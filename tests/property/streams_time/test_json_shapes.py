"""Values read as a table give exactly what each gives when it is parsed alone, whatever they are."""

import json

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.records.columns import Places
from headrace.streams.decode import json_values
from headrace.streams.decode.json_shapes import JsonShape
from headrace.streams.decode.json_values import parse_json

FIELDS = pa.schema(
    [
        ("user", pa.string()),
        ("amount", pa.int64()),
        ("small", pa.int16()),
        ("price", pa.float64()),
        ("paid", pa.bool_()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("absent", pa.string()),
    ]
)

# Texts as they stand in JSON: right ones, and such as only a careless parser takes for right.
strings = st.sampled_from(
    ['"a"', '""', '"é"', '"a,b"', '"a\\"b"', '"x}"', '"} null"', '"\\u0041"', '"\t"', "null"]
)
whole = st.sampled_from(
    ["0", "7", "-3", "-0", "00", "01", "+1", "--1", "1.0", "1e2", "0x10", " 5", "5 ", '"5"', "-", ""]
)
large = st.sampled_from(
    [
        *["9223372036854775807", "9223372036854775808", "0x016345785D8A0000", "32768", "null"],
        *["12345678", "123456789", "1234567890123456", "12345678901234567", "1234567:", "12345678/2345678"],
    ]
)
floats = st.sampled_from(
    ["0.5", "-1.25e3", ".5", "5.", "1e400", "1e-400", "nan", "inf", "007.5", "3", "-0.0", "1_0", "NaN"]
)
booleans = st.sampled_from(["true", "false", "1", "True", '"true"', "null"])
moments = st.sampled_from(
    [
        '"2026-01-31T12:00:00Z"',
        '"2026-01-31T12:00:00"',
        '"2026-01-31 12:00:00.5+01:00"',
        '"2026-01-31"',
        '"x"',
        "5",
    ]
)
days = st.sampled_from(['"2026-01-31"', '"2026-02-31"', '"31.1.2026"', "5"])
usual = {
    "user": '"u1"',
    "amount": "12",
    "small": "3",
    "price": "1.5",
    "paid": "true",
    "at": '"2026-01-31T12:00:00Z"',
    "day": '"2026-01-31"',
    "other": '"o"',
}
unusual = {
    "user": strings,
    "amount": whole | large,
    "small": whole | large,
    "price": floats | whole,
    "paid": booleans,
    "at": moments,
    "day": days,
    "other": strings | whole | floats | booleans,
}


@st.composite
def blocks(draw):
    """Some values of one shape or two, of which a few differ in one member or in one byte."""
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :")]))
    keys = draw(st.lists(st.sampled_from(sorted(usual)), min_size=1, max_size=4, unique=True))

    def value(changed=None, content=None, leave_out=None):
        members = {key: usual[key] for key in keys if key != leave_out}
        if changed is not None:
            members[changed] = content
        inner = separators[0].join(f'"{key}"{separators[1]}{text}' for key, text in members.items())
        return f"{{{inner}}}".encode()

    def odd(_):
        kind = draw(st.sampled_from(["member", "byte", "without", "cut", "word"]))
        if kind == "member":
            key = draw(st.sampled_from(keys))
            return value(key, draw(unusual[key]))
        if kind == "without":
            return value(leave_out=draw(st.sampled_from(keys)))
        if kind == "word":
            words = [
                None,
                b"",
                b"null",
                b"{}",
                b"{} null {}",
                b"[]",
                b'{}}\nnull\n{"v":{}',
                b"1} null {",
                b"{}\r",
            ]
            return draw(st.sampled_from(words))
        plain = bytearray(value())
        at = draw(st.integers(0, len(plain) - 1))
        if kind == "cut":
            return bytes(plain[at:]) if draw(st.booleans()) else bytes(plain[:at])
        plain[at : at + draw(st.integers(0, 1))] = draw(
            st.sampled_from([b'"', b",", b"\n", b"\r", b"\\", b"{", b"}", b" ", b"\x00", b"\xff", b"0"])
        )
        return bytes(plain)

    values = [value()] * draw(st.integers(8, 12))
    for at in draw(st.lists(st.integers(0, len(values) - 1), max_size=4)):
        values[at] = odd(at)
    return values


def alone(values):
    """Each value by itself: too few for a table."""
    parsed = [parse_json(Places.of(pa.array([value], pa.binary())), FIELDS) for value in values]
    rows = [tuple(column[0].as_py() for column in each.columns) for each in parsed]
    return rows, [each.reasons[0].as_py() for each in parsed]


@given(blocks())
@example([b'{"user":"a"}'] * 8 + [b'{"user":"}', b'{"user":"x""}'])
@example([b'{"user":"a","other":"b"}'] * 8 + [b'{"user":","other":"b"}', b'{"user":"x"","other":"b"}'])
@example([b'{"user":"a"}'] * 8 + [b'{"user":"x"y"}'])
@example([b'{"user":"a"}'] * 8 + [b'{"user":"x\ty"}'])
@example([b'{"user":"a"}'] * 8 + [b'{"user":"x\\y"}'])
@example([b'{"amount":1}'] * 8 + [b'{"amount":0x016345785D8A0000}'])
@example([b'{"price":1.5}'] * 8 + [b'{"price":1e400}', b'{"price":1e-400}'])
@example([b'{"user":"a"}'] * 8 + [b'{"user":\n"a"}', b""])
def test_a_block_gives_what_its_values_give_alone(values):
    parsed = parse_json(Places.of(pa.array(values, pa.binary())), FIELDS)
    rows = list(zip(*[column.to_pylist() for column in parsed.columns], strict=True))
    assert repr((rows, parsed.reasons.to_pylist())) == repr(alone(values))  # so that nan is itself


@given(
    st.lists(
        st.fixed_dictionaries({"user": st.text(max_size=5), "amount": st.integers(-(10**6), 10**6)}),
        min_size=8,
        max_size=20,
    )
)
def test_what_python_writes_is_read_whatever_the_text(rows):
    values = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    parsed = parse_json(Places.of(pa.array(values, pa.binary())), FIELDS)
    assert parsed.bad_count == 0
    assert parsed.columns[0].to_pylist() == [row["user"] for row in rows]
    assert parsed.columns[1].to_pylist() == [row["amount"] for row in rows]


def test_values_that_look_alike_are_read_as_a_table():
    """Guards the property above: the fast way is really taken."""
    values = Places.of(pa.array([b'{"user": "a", "price": 1.5, "x": true}'] * 3, pa.binary()))
    alike, columns = JsonShape.of(values[0]).read(values, FIELDS)
    assert alike.all()
    assert columns[3].to_pylist() == [1.5] * 3


def test_a_block_whose_first_value_has_a_null_is_read_as_a_table_too(monkeypatch):
    values = [b'{"user":null,"amount":1}', *[b'{"user":"a","amount":2}'] * 20]
    left = []
    parse = json_values._parse_halving
    monkeypatch.setattr(
        json_values, "_parse_halving", lambda some, fields: left.append(len(some)) or parse(some, fields)
    )
    parsed = parse_json(Places.of(pa.array(values, pa.binary())), FIELDS)
    assert left == [1]
    assert parsed.columns[0].to_pylist() == [None, *["a"] * 20]
    assert parsed.columns[1].to_pylist() == [1, *[2] * 20]
