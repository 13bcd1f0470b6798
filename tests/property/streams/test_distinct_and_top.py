"""Distinct rows and the first rows of each group equal DuckDB's answer after every batch of changes."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.joins.histories import DECIMALS, FLAGS, INSTANTS, NUMBERS, TEXTS
from tests.property.streams.rows_that_come_and_go import check, histories, outputs

from headrace.streams.operators import Distinct, Top

SCHEMA = pa.schema(
    [
        ("g", pa.string()),
        ("n", pa.int64()),
        ("d", pa.decimal128(19, 2)),
        ("b", pa.bool_()),
        ("x", pa.float64()),
    ]
)
DOUBLES = st.sampled_from([0.5, -1.5, float("nan"), float("inf"), None])  # zeros: DuckDB tells them apart
ROWS = st.fixed_dictionaries(
    {"g": st.sampled_from(["a", "b", None]), "n": NUMBERS, "d": DECIMALS, "b": FLAGS, "x": DOUBLES}
)
FIRST = """
select {columns} from (
  select *, row_number() over (partition by g order by {by}, {ties}) as place from rows
) where place <= {n}
"""
TIES = ", ".join(f"{name} asc nulls first" for name in SCHEMA.names)
ORDERS = {
    "x desc nulls last": (("x", True),),
    "n asc nulls last": (("n", False),),
    "b desc nulls last, d asc nulls last": (("b", True), ("d", False)),
}


@settings(max_examples=examples(30), deadline=None)
@given(history=histories(ROWS), columns=st.sampled_from([("g",), ("x", "g"), ("n", "d", "b")]))
def test_distinct_rows_are_those_of_sql_after_every_batch(history, columns):
    check(Distinct(columns), SCHEMA, history, f"select distinct {', '.join(columns)} from rows")


@settings(max_examples=examples(16), deadline=None)
@given(
    history=histories(st.fixed_dictionaries({"t": INSTANTS, "s": TEXTS, "z": st.sampled_from([0.0, -0.0])}))
)
def test_both_zeros_are_one_value_and_values_may_be_times(history):
    schema = pa.schema([("t", pa.timestamp("us", "UTC")), ("s", pa.string()), ("z", pa.float64())])
    check(Distinct(("t", "s", "z")), schema, history, "select distinct t, s, 0.0::double as z from rows")


@pytest.mark.parametrize("append_only", [False, True])
@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=examples(16), deadline=None)
@given(data=st.data(), n=st.integers(1, 4))
def test_the_first_rows_of_a_group_are_those_of_sql_after_every_batch(append_only, order, data, n):
    history = data.draw(histories(ROWS, append_only=append_only))
    operator = Top(n, ("g",), ORDERS[order], append_only=append_only)
    sql = FIRST.format(columns=", ".join(SCHEMA.names), by=order, ties=TIES, n=n)
    state = check(operator, SCHEMA, history, sql)
    if append_only:
        state.snapshot()
        assert state.row_count <= 3 * n
    assert [each.rows for each in state.held()] == [state.row_count]


@settings(max_examples=examples(16), deadline=None)
@given(history=histories(ROWS), n=st.integers(1, 3))
def test_the_key_of_a_table_breaks_ties_before_its_other_columns(history, n):
    operator = Top(n, ("g",), (("b", True),), ties=("x", "n"))
    ties = "x asc nulls first, n asc nulls first, " + TIES
    check(
        operator,
        SCHEMA,
        history,
        FIRST.format(columns=", ".join(SCHEMA.names), by="b desc nulls last", ties=ties, n=n),
    )


@settings(max_examples=examples(16), deadline=None)
@given(history=histories(ROWS), data=st.data())
def test_what_comes_out_of_a_step_does_not_depend_on_the_order_of_what_came_in(history, data):
    batches = [changes for changes, _, _ in history]
    mixed = [data.draw(st.permutations(each)) for each in batches]
    for operator in (Distinct(("g", "n")), Top(2, ("g",), (("x", True),))):
        assert outputs(operator, SCHEMA, batches) == outputs(operator, SCHEMA, mixed)


def test_a_row_that_goes_lets_the_next_one_in():
    schema = pa.schema([("g", pa.string()), ("n", pa.int64())])
    first = [{"g": "a", "n": n, "_weight": 1} for n in (1, 2, 3)]
    _, gone = outputs(Top(2, ("g",), (("n", True),)), schema, [first, [{**first[2], "_weight": -1}]])
    assert "'n': [3, 1]" in gone or "'n': [1, 3]" in gone
