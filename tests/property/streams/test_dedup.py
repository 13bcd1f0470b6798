"""Rows of a stream without repetitions equal DuckDB's answer over its log, whatever the reading."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.joins.histories import (
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
from tests.property.streams.rows_that_come_and_go import DATABASE, stamped

from headrace.streams.operators import Dedup

SCHEMA = pa.schema([("k", pa.float64()), ("a", pa.string())])
ROWS = st.fixed_dictionaries({"k": st.one_of(st.just(1.5), DOUBLES), "a": TEXTS})
FIRST = """
with taken as (
  select * replace (k + 0.0 as k) from rows where _watermark is null or _watermark - {wait} <= _event_time
)
select * exclude before from (
  select *, lag(_event_time) over (partition by k order by _event_time, _partition, _offset) as before
  from taken
) where before is null or _event_time - before > {within}
"""


def judged(operator, batches):
    rows = [row for arrived, _ in batches for row in arrived[0]]
    DATABASE.register("rows", table_of(rows, stamped(SCHEMA)))
    sql = FIRST.format(wait=operator.wait_us, within=operator.within_us)
    return rows_of(DATABASE.sql(sql).to_arrow_table(), stamps=True)


def check(operator, batches, restarts):
    total, counts, aside = run(operator, (SCHEMA,), batches, restarts)
    assert total == judged(operator, batches)
    late = [
        row
        for arrived, _ in batches
        for row in arrived[0]
        if row["_watermark"] is not None and row["_watermark"] - operator.wait_us > row["_event_time"]
    ]
    assert counts[0, "dropped"] == len(late)
    assert aside == Counter((0, row["_partition"], row["_offset"], "late") for row in late)


@settings(max_examples=examples(30), deadline=None)
@given(log=logs(ROWS), within=st.sampled_from([0, 3, 15, 100]), wait=st.sampled_from([0, 4]), data=st.data())
def test_any_reading_keeps_the_rows_that_repeat_none_by_the_log(log, within, wait, data):
    operator = Dedup(("k",), within, wait)
    for _ in range(2):
        batches = data.draw(readings((log,)))
        check(operator, batches, [data.draw(RESTARTS) for _ in batches])


@pytest.mark.parametrize("within", [0, 60, 900])
def test_long_streams_in_many_batches_hold_no_more_than_their_time(within):
    chance = np.random.default_rng(within)

    def row(chance):
        return {"k": [1.0, float("nan"), None, *range(3, 400)][int(chance.zipf(1.3)) % 400], "a": "x"}

    log, operator = long_logs(chance, row), Dedup(("k",), within)
    for _ in range(2):
        batches = long_reading(chance, (log,))
        check(operator, batches, long_restarts(chance, batches))
    state = operator.new_state((SCHEMA,))
    for arrived, watermarks in batches[:-1]:
        rows = table_of(arrived[0], stamped(SCHEMA))
        state.advance([rows if rows.num_rows else None], watermarks)
    state.snapshot()
    times = [row["_event_time"] for partition, _ in log for row in partition]
    recent = sum(time >= batches[-2][1][0] - within for time in times)
    assert state.row_count <= recent


def test_a_row_of_a_partition_that_was_not_waited_for_is_dropped_and_told():
    rows = [
        {
            "k": 1.0,
            "a": "x",
            "_partition": 0,
            "_offset": 0,
            "_event_time": 50,
            "_watermark": None,
            "_weight": 1,
        },
        {
            "k": 1.0,
            "a": "y",
            "_partition": 1,
            "_offset": 0,
            "_event_time": 10,
            "_watermark": None,
            "_weight": 1,
        },
    ]
    batches = [([[rows[0]]], [40]), ([[rows[1]]], [60])]
    total, counts, aside = run(Dedup(("k",), 100), (SCHEMA,), batches, [None, "restart"])
    assert [row[1] for row in total] == ["'x'"]
    assert counts == {(0, "dropped"): 1, (0, "forgotten"): 1}
    assert aside == {(0, 1, 0, "state gone"): 1}
