"""Event time as an expression: what it gives, which rows fail, and what is refused before anything runs."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from headrace.errors import ConfigError
from headrace.streams.decode.time_expressions import TimeExpression

COLUMNS = pa.schema(
    [
        ("day", pa.string()),
        ("clock", pa.string()),
        ("count", pa.int32()),
        ("seconds", pa.float64()),
        ("payload", pa.struct([("at", pa.string())])),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
ROW = {
    "day": "2026-03-04",
    "clock": "05:06:07",
    "count": 90,
    "seconds": 1.5,
    "payload": {"at": "2026-03-04T05:06:07Z"},
    "at": datetime(2026, 3, 4, tzinfo=UTC),
}


def computed(text, *rows):
    given = [{**ROW, **row} for row in rows] or [ROW]
    columns = [pa.array([row[field.name] for row in given], field.type) for field in COLUMNS]
    return TimeExpression(text, COLUMNS).compute(columns, len(given))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("to_timestamp(concat(day, ' ', clock))", datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("TO_TIMESTAMP(Day || 'T' || `clock` || '.25+01:00')", datetime(2026, 3, 4, 4, 6, 7, 250_000, UTC)),
        ("to_timestamp(day, 'yyyy-MM-dd')", datetime(2026, 3, 4, tzinfo=UTC)),
        ("to_timestamp(payload.at)", datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)),
        ("cast(day as timestamp)", datetime(2026, 3, 4, tzinfo=UTC)),
        ("to_date(day)", date(2026, 3, 4)),
        ("timestamp_seconds(count)", datetime(1970, 1, 1, 0, 1, 30, tzinfo=UTC)),
        ("timestamp_seconds(seconds)", datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        ("timestamp_millis(count * 1000 + 1)", datetime(1970, 1, 1, 0, 1, 30, 1000, UTC)),
        ("at + interval 1 day 2 hours", datetime(2026, 3, 5, 2, tzinfo=UTC)),
        ("at - INTERVAL '5' MINUTE", datetime(2026, 3, 3, 23, 55, tzinfo=UTC)),
        ("(count + 10) * 2", 200),
        ("to_timestamp(substring(day, 1, 8) || '09')", datetime(2026, 3, 9, tzinfo=UTC)),
    ],
)
def test_an_expression_gives_a_time(text, expected):
    assert computed(text).values.to_pylist() == [expected]
    assert computed(text).failed == {}


def test_a_row_whose_expression_fails_has_no_time_and_a_reason():
    found = computed(
        "to_timestamp(concat(day, ' ', clock))", {"day": "2026-13-04"}, {}, {"day": None}, {"clock": "x"}
    )
    assert [each is None for each in found.values.to_pylist()] == [True, False, True, True]
    assert found.failed == {
        0: "'2026-13-04 05:06:07' is not a timestamp",
        3: "'2026-03-04 x' is not a timestamp",
    }
    assert computed("count * 2000000000", {}).failed == {0: "90, 2000000000 does not fit"}


def test_what_fails_in_an_argument_fails_in_the_whole():
    later = "coalesce(to_timestamp(day), at)"
    found = computed(later, {"day": "soon"}, {"day": None}, {})
    assert found.failed == {0: "'soon' is not a timestamp"}
    assert found.values.to_pylist() == [None, ROW["at"], ROW["at"]]
    tried = computed("coalesce(try_to_timestamp(day), at)", {"day": "soon"})
    assert (tried.values.to_pylist(), tried.failed) == ([ROW["at"]], {})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("to_timestamp(dya)", "there is no column 'dya'; did you mean 'day'?"),
        ("to_timestamp(payload.ta)", "there is no field 'payload.ta'; there is at"),
        ("to_timestmp(day)", "there is no function 'to_timestmp'; did you mean 'to_timestamp'?"),
        ("concat(day, clock)", "gives a string; make it a timestamp: to_timestamp"),
        ("seconds * 1.5", "gives a double; make it a timestamp"),
        ("to_timestamp(day, 'QQ')", r"to_timestamp\(string, 'QQ'\) is not among what an event time"),
        ("day + 1", r"\+\(string, int\) is not among"),
        ("to_timestamp(day", "',' is missing before 'its end'"),
        ("to_timestamp(day) day", "'day' is not expected there"),
        ("at + interval 3 months", "interval 3 month: write interval 5 minutes"),
        ("cast(at as long)", "a timestamp cannot be cast to long"),
        ("at >", "'>' is not expected there"),
    ],
)
def test_a_mistake_is_named_before_anything_is_read(text, reason):
    with pytest.raises(ConfigError, match=reason) as refused:
        TimeExpression(text, COLUMNS)
    assert f"event_time={text!r}" in str(refused.value)
    assert "\n" not in str(refused.value)
