"""Tables of upserts and groups without windows, against DuckDB over everything that was put in."""

import math
import statistics
from fractions import Fraction

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.joins.histories import parts

from headrace.streams.operators import STAMPS, WEIGHT, Upserts, agg
from headrace.streams.operators.groups import Group
from headrace.streams.operators.operator import stamp_fields

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
values = st.tuples(
    st.sampled_from(["a", "b", "", None]),
    st.one_of(st.none(), st.integers(-(2**40), 2**40)),
    st.one_of(st.none(), st.sampled_from([0.1, -0.0, 0.0, math.inf, -math.inf, math.nan, 1e300, 2.5])),
)


def changes(rows):
    """Rows with weights, and stamps that mean nothing."""
    columns = {name: [row[at] for row, _ in rows] for at, name in enumerate(SCHEMA.names)}
    table = pa.table(columns, schema=SCHEMA)
    for field in stamp_fields():
        each = [weight for _, weight in rows] if field.name == WEIGHT else [None] * len(rows)
        table = table.append_column(field, pa.array(each, field.type))
    return table


def summed(tables):
    """What weights come to: each row as often as it is there."""
    counts = {}
    for table in tables:
        names = [name for name in table.column_names if name not in STAMPS]
        for row in table.to_pylist():
            key = repr([row[name] for name in names])
            counts[key] = counts.get(key, 0) + row[WEIGHT]
    return {key: count for key, count in counts.items() if count}


@st.composite
def histories(draw):
    """Batches of rows that come and go; a row goes only if it is there."""
    held, batches = [], []
    for _ in range(draw(st.integers(1, 5))):
        batch = []
        for _ in range(draw(st.integers(0, 6))):
            if held and draw(st.booleans()):
                batch.append((held.pop(draw(st.integers(0, len(held) - 1))), -1))
            else:
                row = draw(values)
                held.append(row)
                batch.append((row, 1))
        batches.append((batch, list(held), draw(st.sampled_from(["go on", "snapshot", "deltas", "parts"]))))
    return batches


def restarted(operator, state, deltas, how):
    if how == "go on":
        return state
    new = operator.new_state([SCHEMA])
    for blob in {"snapshot": [state.snapshot()], "deltas": deltas, "parts": parts(operator, state)}[how]:
        new.replay(blob)
    return new


AGGREGATES = {
    "additive": (
        {"c": agg.count(), "cn": agg.count("n"), "s": agg.sum("n"), "xs": agg.sum("x")},
        "count(*) c, count(n) cn, sum(n)::bigint s, {xs} xs",
    ),
    "held": (
        {"c": agg.count(), "least": agg.min("n"), "most": agg.max("n")},
        "count(*) c, min(n) least, max(n) most",
    ),
    "ordered": (
        {
            "f": agg.first("n"),
            "l": agg.last("n"),
            "present": agg.first("n", ignore_nulls=True),
            "all": agg.collect("n", limit=3),
            "d": agg.count_distinct("n"),
            "dx": agg.count_distinct("x"),
        },
        """
        first(n order by n nulls first) f, last(n order by n nulls first) l, min(n) present,
        coalesce(list(n order by n) filter (where n is not null), [])[:3] "all", count(distinct n) d,
        count(distinct x + 0.0) dx
        """,
    ),
    "moments": (
        {"m": agg.mean("n"), "v": agg.variance("n"), "s": agg.stddev("n")},
        "NULL::double m, NULL::double v, NULL::double s",
    ),
}


def moments(numbers):
    """Mean, variance and standard deviation of integers, exact but for one rounding each."""
    if not numbers:
        return None, None, None
    mean = float(sum(numbers)) / len(numbers)
    if len(numbers) < 2:
        return mean, None, None
    variance = float(statistics.variance(map(Fraction, numbers)))
    return mean, variance, math.sqrt(variance)


def python_sum(numbers):
    """The exact sum of doubles, rounded once; NaN where one is, or both infinities are."""
    if any(math.isnan(each) for each in numbers) or {math.inf, -math.inf} <= set(numbers):
        return math.nan
    infinite = [each for each in numbers if math.isinf(each)]
    if infinite:
        return infinite[0]
    try:
        return math.fsum(numbers) + 0.0
    except OverflowError:
        return math.inf


def expected(held, kind):
    """The groups of what is there, by DuckDB; sums of doubles, which it rounds step by step, by Python."""
    rows = pa.table({name: [row[at] for row in held] for at, name in enumerate(SCHEMA.names)}, schema=SCHEMA)  # noqa: F841
    query = AGGREGATES[kind][1].format(xs="NULL::double")
    found = duckdb.sql(f"select k, {query} from rows group by k").to_arrow_table().to_pylist()
    for row in found:
        numbers = [x for k, _, x in held if k == row["k"] and x is not None]
        if "xs" in row:
            row["xs"] = python_sum(numbers) if numbers else None
        if "v" in row:
            whole = [n for k, n, _ in held if k == row["k"] and n is not None]
            row["m"], row["v"], row["s"] = moments(whole)
    return {repr(list(row.values())): 1 for row in found}


@pytest.mark.parametrize("kind", AGGREGATES)
@settings(deadline=None, max_examples=examples(24))
@given(history=histories())
def test_groups_are_what_sql_makes_of_the_rows_that_are_there(kind, history):
    operator = Group(keys=("k",), aggregates=tuple(AGGREGATES[kind][0].items()), order=())
    state, out, deltas = operator.new_state([SCHEMA]), [], []
    for batch, held, how in history:
        step = state.advance([changes(batch)], [0])
        deltas.append(step.delta)
        out += [] if step.changes is None else [step.changes]
        assert summed(out) == expected(held, kind)
        state = restarted(operator, state, deltas, how)


def test_the_first_row_of_a_table_is_the_one_with_the_least_key():
    operator = Group(("k",), (("x", agg.first("x")), ("all", agg.collect("x"))), order=("n",))
    rows = [(("a", 3, 0.1), 1), (("a", 1, 2.5), 1), (("a", 2, 1e300), 1)]
    state = operator.new_state([SCHEMA])
    out = [state.advance([changes(each)], [0]).changes for each in (rows, [(rows[1][0], -1)])]
    assert out[0].to_pylist()[0]["all"] == [2.5, 1e300, 0.1]
    assert [(row["x"], row[WEIGHT]) for row in out[1].to_pylist()] == [(2.5, -1), (1e300, 1)]


@st.composite
def upserts(draw):
    """Records of two partitions, each with offsets of its own, cut into batches in any interleaving."""
    logs = {0: [], 1: []}
    for _ in range(draw(st.integers(1, 12))):
        partition = draw(st.integers(0, 1))
        key = draw(st.sampled_from(["a", "b", ""]))
        logs[partition].append((key, draw(st.integers(0, 3)), draw(st.booleans()), draw(st.integers(0, 5))))
    return logs, draw(st.lists(st.integers(0, 1), min_size=0, max_size=20)), draw(st.integers(1, 4))


TABLE = pa.schema([("k", pa.string()), ("n", pa.int64()), ("_deleted", pa.bool_())])


def versions(rows):
    columns = {
        "k": [each[0] for _, _, each in rows],
        "n": [each[1] for _, _, each in rows],
        "_deleted": [each[2] for _, _, each in rows],
        "_partition": [partition for partition, _, _ in rows],
        "_offset": [offset for _, offset, _ in rows],
        "_event_time": [each[3] for _, _, each in rows],
        "_watermark": [None] * len(rows),
        WEIGHT: [1] * len(rows),
    }
    return pa.table(columns, schema=pa.schema([*TABLE, *stamp_fields()]))


LATEST = """
with newest as (
    select * from log
    qualify row_number() over (partition by k, _partition order by _offset desc) = 1
)
select k, n from newest
qualify row_number() over (partition by k order by _event_time desc, _partition desc) = 1 and not _deleted
"""


@settings(deadline=None, max_examples=examples(36))
@given(case=upserts())
def test_a_table_is_the_newest_row_of_each_key_whatever_the_interleaving(case):
    logs, turns, size = case
    left = {partition: list(enumerate(records)) for partition, records in logs.items()}
    order = []
    for turn in [*turns, *[0] * 12, *[1] * 12]:
        if left[turn]:
            offset, record = left[turn].pop(0)
            order.append((turn, offset, record))
    operator = Upserts(("k",))
    state, out, deltas = operator.new_state([TABLE]), [], []
    for begin in range(0, len(order), size):
        batch = order[begin : begin + size]
        step = state.advance([versions(batch)], [0])
        deltas.append(step.delta)
        out += [] if step.changes is None else [step.changes]
        log = versions(order[: begin + size])  # noqa: F841 - DuckDB finds it by its name
        found = duckdb.sql(LATEST).to_arrow_table().to_pylist()
        assert summed(out) == {repr([row["k"], row["n"]]): 1 for row in found}
        if begin % 2:
            state = operator.new_state([TABLE])
            for delta in deltas:
                state.replay(delta)
        elif begin % 3:
            blob = state.snapshot()
            state = operator.new_state([TABLE])
            state.replay(blob)
