"""The first row of each key of rows that come and go equals DuckDB's answer, whatever the batches."""

import math

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.joins.histories import Restarted, table_of
from tests.property.streams.rows_that_come_and_go import check, histories, stamped

from headrace.streams.operators import FirstRow

SCHEMA = pa.schema([("k", pa.float64()), ("id", pa.int64()), ("a", pa.string())])
FIRST = """
select k + 0.0 as k, id, a from rows qualify row_number() over (
  partition by k + 0.0 order by id asc nulls first, k + 0.0 asc nulls first, a asc nulls first
) = 1
"""
ROWS = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, math.nan, 0.0, -0.0, 1.5]),
        "id": st.sampled_from([None, 1, 2]),
        "a": st.sampled_from(["", "x", None]),
    }
)


@settings(max_examples=examples(24), deadline=None)
@given(histories(ROWS))
def test_the_first_row_of_each_key_is_there_at_every_step(history):
    check(FirstRow(("k",), ("id",)), SCHEMA, history, FIRST)


@settings(max_examples=examples(12), deadline=None)
@given(histories(ROWS))
def test_those_that_are_not_shown_are_counted(history):
    subject, hidden = Restarted(FirstRow(("k",)), [SCHEMA]), 0
    for changes, present, restart in history:
        step = subject.advance([table_of(changes, stamped(SCHEMA))], (0,), restart)
        hidden += step.counts.get(0, {}).get("hidden", 0)
        keys = {repr(row["k"] + 0.0 if row["k"] is not None else None) for row in present}
        assert hidden == len(present) - len(keys)
