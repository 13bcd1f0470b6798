"""Event time as an expression: what Spark makes of the same one, and an application that goes by it."""

import json
import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from app_runs import BASE_MS, catch_up, new_topic, options, reflected, rows, send
from pyspark.errors import PySparkException
from topics import create_topic

from headrace import App, agg, tumbling
from headrace.app.verify.command import verified
from headrace.streams.decode.time_expressions import TimeExpression

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

TEXTS = [
    "2026-03-04 05:06:07",
    "2026-03-04T05:06:07.5",
    "2026-3-4 5:6:7",
    "2026-03-04 05:06:07.123456789",
    "2026-03-04 05:06:07Z",
    "2026-03-04 05:06:07+05:30",
    "2026-03-04 05:06:07 UTC",
    " 2026-03-04 05:06:07 ",
    "2026-03-04",
    "0001-01-01 00:00:00",
    "9999-12-31 23:59:59.999999",
]
NO_TIMES = ["", "soon", "2026-13-04 05:06:07", "2026-02-30", "2026-03-04 25:00:00", "04.03.2026"]
PATTERNS = {
    "yyyy-MM-dd HH:mm:ss": ["2026-03-04 05:06:07"],
    "dd/MM/yyyy HH:mm": ["04/03/2026 05:06", "31/12/1999 23:59"],
    "d.M.yyyy H:m:s": ["4.3.2026 5:6:7", "24.12.2026 15:16:17"],
    "MM/dd/yyyy hh:mm:ss a": ["03/04/2026 12:06:07 AM", "03/04/2026 12:06:07 PM", "03/04/2026 01:06:07 PM"],
    "yyyyMMdd'T'HHmmss": ["20260304T050607"],
    "yyyy-MM-dd HH:mm:ss.SSS": ["2026-03-04 05:06:07.125"],
    "yyyy-MM-dd'T'HH:mm:ssXXX": ["2026-03-04T05:06:07Z", "2026-03-04T05:06:07-08:00"],
    "yyyy-MM-dd": ["2026-03-04"],
}
UNFIT = {
    "yyyy-MM-dd HH:mm:ss": ["2026-03-04 5:06:07", "2026-03-04", "2026-03-04 05:06:07.1", "x"],
    "dd/MM/yyyy HH:mm": ["32/01/2026 05:06", "4/3/2026 05:06"],
    "MM/dd/yyyy hh:mm:ss a": ["03/04/2026 13:06:07 PM"],
}
NUMBERS = [
    ("timestamp_seconds(n)", [0, 1, -1, 1_772_600_767, 253_402_300_799]),
    ("timestamp_millis(n)", [0, 1, -1, 1_772_600_767_123]),
    ("timestamp_micros(n + 1)", [0, -5, 1_772_600_767_123_456]),
    ("timestamp_seconds(n / 4)", [1, 2, -3]),
    ("to_timestamp(n)", [0, 1_772_600_767]),
    ("timestamp_seconds(n * 60 - 7)", [0, 1, 29_543_346]),
    ("timestamp_millis(n) + interval 1 day 3 minutes", [0, 1_772_600_767_123]),
    ("timestamp_millis(n) - interval '5' minute", [0]),
    ("to_timestamp(concat('2026-03-', n, 'T00:00:00'))", [1, 12]),
    ("cast(concat('2026-01-', n) as date)", [1, 28]),
    ("coalesce(try_to_timestamp(cast(n as string)), timestamp_seconds(n))", [7]),
    ("to_timestamp(substr(trim('  2026-03-04 05:06:07  '), 1, 10))", [1]),
]


def ours(text, value):
    schema = pa.schema([("n", pa.int64() if isinstance(value, int) else pa.string())])
    found = TimeExpression(text, schema).compute([pa.array([value], schema.field("n").type)], 1).values
    return found.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()[0]


def of_spark(spark, cases):
    """What Spark gives for each expression and its value, all in one row."""
    kinds = ["bigint" if isinstance(value, int) else "string" for _, value in cases]
    schema = ", ".join(f"c{number} {kind}" for number, kind in enumerate(kinds))
    frame = spark.createDataFrame([tuple(value for _, value in cases)], schema)
    named = [re.sub(r"\bn\b", f"c{number}", text) for number, (text, _) in enumerate(cases)]
    (row,) = frame.selectExpr(*[f"unix_micros(cast({each} as timestamp))" for each in named]).collect()
    return list(row)


def by_pattern(pattern):
    return "try_to_timestamp(n, '" + pattern.replace("'", "\\'") + "')"


CASES = [
    *[("to_timestamp(n)", each) for each in TEXTS],
    *[("try_to_timestamp(n)", each) for each in NO_TIMES],
    *[(by_pattern(pattern), each) for pattern, texts in PATTERNS.items() for each in texts],
    *[(by_pattern(pattern), each) for pattern, texts in UNFIT.items() for each in texts],
    *[(text, each) for text, numbers in NUMBERS for each in numbers],
]


def test_an_expression_gives_what_it_gives_in_spark(spark):
    found = [(text, value, ours(text, value)) for text, value in CASES]
    expected = of_spark(spark, CASES)
    assert found == [(*case, us) for case, us in zip(CASES, expected, strict=True)]
    missing = [value for (_, value), us in zip(CASES, expected, strict=True) if us is None]
    assert missing == NO_TIMES + [each for texts in UNFIT.values() for each in texts]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("to_timestamp(n)", "soon"),
        ("to_timestamp(n, 'dd/MM/yyyy')", "2026-03-04"),
        ("cast(n as date)", "2026-02-30"),
        ("timestamp_seconds(cast(n as int))", "3000000000"),
        ("timestamp_seconds(1 / (cast(n as int) - 1))", "1"),
        ("coalesce(to_timestamp(n), to_timestamp('2026-03-04'))", "soon"),
    ],
)
def test_where_spark_raises_a_row_fails(spark, text, value):
    with pytest.raises(PySparkException):
        of_spark(spark, [(text, value)])
    failed = TimeExpression(text, pa.schema([("n", pa.string())])).compute([pa.array([value])], 1)
    assert (failed.values.null_count, list(failed.failed)) == (1, [0])


def reading(second, **others):
    at = datetime.fromtimestamp(BASE_MS / 1000 + second, UTC)
    return json.dumps({"day": f"{at:%d.%m.%Y}", "clock": f"{at:%H:%M:%S}", **others}).encode()


def test_an_application_goes_by_the_time_that_an_expression_gives(spark, our_log, tmp_path):
    topic, store = new_topic(), f"sqlite:///{tmp_path}/views.db"
    create_topic(our_log, 2, topic)
    app = App(f"app-{topic}", store=store)
    time = "to_timestamp(concat(day, ' ', clock), 'dd.MM.yyyy HH:mm:ss')"
    readings = app.stream(topic, schema="day string, clock string", event_time=time)

    @app.view
    def counts():
        return readings.window(tumbling("10 seconds")).agg(n=agg.count())

    send(our_log, topic, [reading(1), reading(2, clock="25:00"), reading(3, day=None), reading(12)])
    send(our_log, topic, [reading(900)])
    catch_up(app, our_log, tmp_path / "data")
    assert [row["n"] for row in rows(store)] == [1, 1]
    assert reflected(store).counters == {"on_time": 3, "dead": 2}
    assert all(each.is_equal for each in verified(app, options(our_log, tmp_path / "data")))
