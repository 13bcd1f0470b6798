"""A join of streams equals DuckDB's join of their logs, whatever the reading and the restarts."""

from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.joins.histories import (
    DECIMALS,
    DOUBLES,
    RESTARTS,
    TEXTS,
    logs,
    long_logs,
    long_reading,
    long_restarts,
    readings,
    rows_of,
    run,
    table_of,
)

from headrace.streams.operators import StreamJoin
from headrace.streams.operators.operator import stamp_fields

LEFT = pa.schema([("k", pa.float64()), ("a", pa.string())])
RIGHT = pa.schema([("k", pa.float64()), ("b", pa.decimal128(19, 2))])
KEYS = st.one_of(st.just(1.5), DOUBLES)
LEFT_ROWS = st.fixed_dictionaries({"k": KEYS, "a": TEXTS})
RIGHT_ROWS = st.fixed_dictionaries({"k": KEYS, "b": DECIMALS})
DATABASE = duckdb.connect()
JOINED = """
with l as (select * from left_log where _watermark is null or _watermark <= _event_time + {correct_for}),
     r as (select * from right_log where _watermark is null or _watermark <= _event_time + {correct_for})
select {key} + 0.0 as k, l.a, r.b,
       coalesce(l._partition, r._partition), coalesce(l._offset, r._offset),
       coalesce(l._event_time, r._event_time),
       case when l._event_time is null then r._watermark else l._watermark end
from l {how} join r
  on l.k = r.k and r._event_time between l._event_time - {before} and l._event_time + {after}
"""
COUNTERS = """
select count(*) filter (where _watermark > _event_time + {correct_for}) as dropped,
       count(*) filter (where _watermark > _event_time) - dropped as corrected
from {log}
"""
OPTIONS = st.tuples(
    st.sampled_from(["inner", "left", "right", "full"]),
    st.sampled_from([(0, 0), (0, 5), (5, 0), (3, 8), (-2, 6), (100, 100)]),
    st.sampled_from([("drop", 0), ("correct", 0), ("correct", 4), ("correct", 100)]),
)
INPUTS = st.tuples(logs(LEFT_ROWS), logs(RIGHT_ROWS))


def judged(operator, inputs):
    """What DuckDB makes of the logs: the joined rows, and what is dropped and corrected of each."""
    values = {
        "correct_for": operator.correct_for_us,
        "before": operator.before_us,
        "after": operator.after_us,
        "how": operator.how,
        "key": {"right": "r.k", "full": "coalesce(l.k, r.k)"}.get(operator.how, "l.k"),
    }
    counts = Counter()
    for number, (name, partitions, schema) in enumerate(
        zip(("left_log", "right_log"), inputs, (LEFT, RIGHT), strict=True)
    ):
        rows = [row for log, _ in partitions for row in log]
        DATABASE.register(name, table_of(rows, pa.schema([*schema, *stamp_fields()])))
        dropped, corrected = DATABASE.sql(COUNTERS.format(log=name, **values)).fetchall()[0]
        counts.update({(number, "dropped"): dropped, (number, "corrected"): corrected})
    return rows_of(DATABASE.sql(JOINED.format(**values)).to_arrow_table()), +counts


@settings(max_examples=examples(30), deadline=None)
@given(options=OPTIONS, inputs=INPUTS, data=st.data())
def test_any_reading_of_the_logs_gives_what_sql_gives(options, inputs, data):
    how, (before, after), (late, correct_for) = options
    operator = StreamJoin(
        left_on=("k",), right_on=("k",), before_us=before, after_us=after, how=how, late=late,
        correct_for_us=correct_for,
    )  # fmt: skip
    expected, counts = judged(operator, inputs)
    for _ in range(2):
        batches = data.draw(readings(inputs))
        restarts = [data.draw(RESTARTS) for _ in batches]
        total, counted, aside = run(operator, (LEFT, RIGHT), batches, restarts)
        assert total == expected
        assert counted == counts
        assert Counter((number, reason) for number, _, _, reason in aside.elements()) == Counter(
            {(number, "late"): count for (number, what), count in counts.items() if what == "dropped"}
        )


@pytest.mark.parametrize("how", ["inner", "full"])
@pytest.mark.parametrize(("late", "correct_for"), [("drop", 0), ("correct", 60)])
def test_long_streams_in_many_batches_give_what_sql_gives(how, late, correct_for):
    chance = np.random.default_rng(len(how) + correct_for)

    def left(chance):
        return {"k": [1.0, 2.0, float("nan"), None, *range(3, 40)][int(chance.zipf(1.5)) % 41], "a": "x"}

    def right(chance):
        return {"k": left(chance)["k"], "b": None}

    inputs = (long_logs(chance, left), long_logs(chance, right))
    operator = StreamJoin(
        left_on=("k",), right_on=("k",), before_us=20, after_us=70, how=how, late=late,
        correct_for_us=correct_for,
    )  # fmt: skip
    expected, counts = judged(operator, inputs)
    for _ in range(2):
        batches = long_reading(chance, inputs)
        total, counted, _ = run(operator, (LEFT, RIGHT), batches, long_restarts(chance, batches))
        assert total == expected
        assert counted == counts
