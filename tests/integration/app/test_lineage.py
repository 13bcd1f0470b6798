"""Windows over rows whose records are known have the records of their members, and no others."""

import pytest

from headrace import agg, tumbling
from headrace.streams.dataflow import RECORDS, record_column, traced_windows
from headrace.streams.operators import WindowOperator

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]

SECOND = 1_000_000


def test_a_window_has_the_records_of_its_members_and_not_those_that_came_too_late(spark):
    operator = WindowOperator(
        window=tumbling("10 seconds"), keys=("place",), aggregates=(("n", agg.count()),)
    )
    rows = [
        ("here", 0, 0, 1 * SECOND, None),
        ("here", 1, 7, 9 * SECOND, None),
        ("there", 0, 1, 2 * SECOND, None),
        ("here", 0, 2, 12 * SECOND, None),
        ("here", 0, 3, 3 * SECOND, 60 * SECOND),  # its window was closed
    ]
    columns = "place string, _partition int, _offset long, _event_time long, _watermark long"
    frame = spark.createDataFrame(rows, columns).withColumn(RECORDS, record_column("t"))
    found = traced_windows(operator, frame, 100 * SECOND).toArrow().to_pylist()
    assert sorted((each["place"], each["n"], each[RECORDS]) for each in found) == [
        ("here", 1, "t:0:2"),
        ("here", 2, "t:0:0\nt:1:7"),
        ("there", 1, "t:0:1"),
    ]
