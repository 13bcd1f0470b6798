"""Each type of PostgreSQL has one form in JSON, whoever wrote the value and whenever."""

import orjson
import pytest

from headrace.capture.postgres.catalog import spark_type
from headrace.capture.postgres.decode.values import TYPES, Encoding, Kind, TypeFacts, encode, encoding_of
from headrace.errors import CorruptionError

FACTS = {
    1000: TypeFacts(element_oid=16),
    1001: TypeFacts(element_oid=17),
    1007: TypeFacts(element_oid=23),
    1009: TypeFacts(element_oid=25),
    1020: TypeFacts(element_oid=603, delimiter=";"),
    1022: TypeFacts(element_oid=701),
    1185: TypeFacts(element_oid=1184),
    1231: TypeFacts(element_oid=1700),
    90001: TypeFacts(base_oid=23),
    90002: TypeFacts(base_oid=90001),
    90003: TypeFacts(base_oid=1114, base_modifier=3),
    90004: TypeFacts(element_oid=90002),
}

CASES = [
    ("boolean", 16, -1, "t", True),
    ("smallint", 21, -1, "-32768", -32768),
    ("bigint", 20, -1, "9223372036854775807", 2**63 - 1),
    ("oid", 26, -1, "4294967295", 2**32 - 1),
    ("real", 700, -1, "1e+30", 1e30),
    ("real, a whole number", 700, -1, "16777216", 16777216),
    ("double", 701, -1, "0.1", 0.1),
    ("double, not a number", 701, -1, "NaN", "NaN"),
    ("double, infinite", 701, -1, "-Infinity", "-Infinity"),
    ("numeric", 1700, -1, "123456789012345678901234567890.10", "123456789012345678901234567890.10"),
    ("numeric, not a number", 1700, -1, "NaN", "NaN"),
    ("money", 790, -1, "-$1,234.56", "-1234.56"),
    ("text", 25, -1, 'q"uote \\ tab\t ü 漢 😀 \x01', 'q"uote \\ tab\t ü 漢 😀 \x01'),
    ("char", 1042, 14, "abc       ", "abc       "),
    ("json as it was written", 114, -1, '{"a" :  1, "a":2}', '{"a" :  1, "a":2}'),
    ("uuid", 2950, -1, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("inet", 869, -1, "10.0.0.0/8", "10.0.0.0/8"),
    ("range", 3904, -1, "[1,5)", "[1,5)"),
    ("point", 600, -1, "(1.5,-2)", "(1.5,-2)"),
    ("an enum, or any other type", 99999, -1, "it's \"odd\"", "it's \"odd\""),
    ("bytea", 17, -1, "\\x00ff10", "AP8Q"),
    ("bytea, empty", 17, -1, "\\x", ""),
    ("bit(1)", 1560, 1, "1", True),
    ("bit(5), the lowest byte first", 1560, 5, "10101", "FQ=="),
    ("varbit", 1562, -1, "1000000001", "AQI="),
    ("varbit, empty", 1562, -1, "", ""),
    ("date", 1082, -1, "1969-12-31", -1),
    ("date, in a leap year", 1082, -1, "2024-02-29", 19782),
    ("date, before the era", 1082, -1, "0044-03-15 BC", -735160),
    ("date, far away", 1082, -1, "5874897-12-31", 2145042905),
    ("date, infinite", 1082, -1, "infinity", "infinity"),
    ("time", 1083, -1, "12:34:56.789", 45_296_789_000),
    ("time(3)", 1083, 3, "12:34:56.789", 45_296_789),
    ("time, the end of a day", 1083, -1, "24:00:00", 86_400_000_000),
    ("timetz", 1266, -1, "00:30:00.5+02", "22:30:00.5Z"),
    ("timetz, west of it, by half an hour", 1266, -1, "23:59:59-05:30", "05:29:59Z"),
    ("timestamp", 1114, -1, "2026-01-02 03:04:05.678901", 1767323045678901),
    ("timestamp(3)", 1114, 3, "1969-12-31 23:59:59.999", -1),
    ("timestamp, infinite", 1114, -1, "-infinity", "-infinity"),
    ("timestamptz", 1184, -1, "2026-01-02 03:04:05.5+00", "2026-01-02T03:04:05.500000Z"),
    ("timestamptz, whole", 1184, -1, "2026-01-02 03:04:05+00", "2026-01-02T03:04:05.000000Z"),
    ("timestamptz, before the era", 1184, -1, "0044-03-15 10:00:00+00 BC", "-0043-03-15T10:00:00.000000Z"),
    ("timestamptz, far away", 1184, -1, "12026-01-01 00:00:00+00", "+12026-01-01T00:00:00.000000Z"),
    ("timestamptz, infinite", 1184, -1, "infinity", "infinity"),
    ("interval", 1186, -1, "1 year 2 mons -3 days +04:05:06.7", 36_572_706_700_000),
    ("interval, negative", 1186, -1, "-00:00:01.5", -1_500_000),
    ("a domain", 90002, -1, "7", 7),
    ("a domain with digits", 90003, -1, "1970-01-01 00:00:01", 1000),
    ("an array", 1007, -1, "{1,NULL,-3}", [1, None, -3]),
    ("an empty array", 1007, -1, "{}", []),
    ("a nested array", 1007, -1, "{{1,2},{3,NULL}}", [[1, 2], [3, None]]),
    ("an array with bounds", 1007, -1, "[2:3]={7,8}", [7, 8]),
    ("texts", 1009, -1, '{a,"b c","q\\"x","null",NULL,"","back\\\\slash"}',
     ["a", "b c", 'q"x', "null", None, "", "back\\slash"]),
    ("bytes", 1001, -1, '{"\\\\x01",NULL}', ["AQ==", None]),
    ("floats", 1022, -1, "{1.5,NaN}", [1.5, "NaN"]),
    ("moments", 1185, -1, '{"2026-01-01 00:00:00+00"}', ["2026-01-01T00:00:00.000000Z"]),
    ("boxes, which have another delimiter", 1020, -1, "{(1,1),(0,0);(2,2),(1,1)}",
     ["(1,1),(0,0)", "(2,2),(1,1)"]),
    ("an array of a domain", 90004, -1, "{1,2}", [1, 2]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("oid", "modifier", "text", "value"), [each[1:] for each in CASES], ids=[c[0] for c in CASES]
)
def test_a_value_stands_in_json_as_documented(oid, modifier, text, value):
    found = orjson.loads(encode(encoding_of(oid, modifier, FACTS), text.encode()))
    assert (found, type(found)) == (value, type(value))


def test_decimals_stand_as_numbers_where_that_is_chosen():
    chosen = encoding_of(1700, -1, FACTS, decimals="double")
    assert encode(chosen, b"1.50") == b"1.50"
    assert orjson.loads(encode(chosen, b"NaN")) == "NaN"


@pytest.mark.parametrize("oid", sorted(TYPES))
def test_a_text_that_is_no_value_of_the_type_is_refused_and_never_guessed(oid):
    encoding = encoding_of(oid, -1, FACTS)
    if encoding.kind in (Kind.DECIMAL, Kind.MONEY):
        pytest.skip("any text is passed on")
    with pytest.raises(CorruptionError, match="cannot be read as"):
        encode(encoding, b"nonsense")


@pytest.mark.parametrize("text", [b"", b"1,2", b"{1", b"1}", b"{1}{2}", b"{1}}", b'{"1}', b"{x}", b"\xff"])
def test_an_array_that_does_not_end_is_refused(text):
    with pytest.raises(CorruptionError):
        encode(Encoding(Kind.INTEGER, True), text)


@pytest.mark.parametrize(
    ("oid", "modifier", "wanted"),
    [(21, -1, "smallint"), (20, -1, "bigint"), (700, -1, "float"), (1184, -1, "timestamp"),
     (1114, 6, "bigint"),
     (1700, -1, "string"), (1007, -1, "array<int>"), (2950, -1, "string"), (16, -1, "boolean")],
)  # fmt: skip
def test_spark_reads_what_stands_there(oid, modifier, wanted):
    base = FACTS[oid].element_oid if oid in FACTS else oid
    assert spark_type(encoding_of(oid, modifier, FACTS), base) == wanted
