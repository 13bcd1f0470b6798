"""A join of tables equals DuckDB's join of the same tables after every batch of their changes."""

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
    FLAGS,
    INSTANTS,
    NUMBERS,
    RESTARTS,
    TEXTS,
    Restarted,
    add,
    long_restarts,
    rows_of,
    table_of,
)

from headrace.streams.operators import TableJoin
from headrace.streams.operators.operator import STAMPS, stamp_fields

LEFT = pa.schema(
    [("k", pa.string()), ("f", pa.float64()), ("a", pa.decimal128(19, 2)), ("t", pa.timestamp("us", "UTC"))]
)
RIGHT = pa.schema([("k", pa.string()), ("g", pa.float64()), ("b", pa.float64()), ("c", pa.bool_())])
LEFT_ROWS = st.fixed_dictionaries({"k": TEXTS, "f": DOUBLES, "a": DECIMALS, "t": INSTANTS})
RIGHT_ROWS = st.fixed_dictionaries({"k": TEXTS, "g": DOUBLES, "b": DOUBLES, "c": FLAGS})
SQL = {
    "inner": "select l.k, l.f + 0.0, l.a, l.t, r.g + 0.0, r.b, r.c from l join r on {on}",
    "left": "select l.k, l.f + 0.0, l.a, l.t, r.g + 0.0, r.b, r.c from l left join r on {on}",
    "right": "select r.k, l.f + 0.0, l.a, l.t, r.g + 0.0, r.b, r.c from l right join r on {on}",
    "full": "select coalesce(l.k, r.k), l.f + 0.0, l.a, l.t, r.g + 0.0, r.b, r.c from l full join r on {on}",
    "semi": "select k, f + 0.0, a, t from l where exists (select 1 from r where {on})",
    "anti": "select k, f + 0.0, a, t from l where not exists (select 1 from r where {on})",
}
DATABASE = duckdb.connect()
DATABASE.execute("set timezone = 'UTC'")


def judged(how, left, right):
    """What DuckDB makes of the tables as they are."""
    names = ["l", "r"]
    for name, rows, schema in zip(names, (left, right), (LEFT, RIGHT), strict=True):
        DATABASE.register(name, table_of(rows, schema))
    table = DATABASE.sql(SQL[how].format(on="l.k = r.k and l.f = r.g")).to_arrow_table()
    return rows_of(pa.table([each.cast(_utc(each.type)) for each in table.columns], names=table.column_names))


def _utc(kind):
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) else kind


def stamped(schema):
    return pa.schema([*schema, *stamp_fields()])


@st.composite
def batches(draw, rows, present):
    """Changes to a table: rows come, one or two at a time, or go; `present` is the table after them."""
    changes = []
    for _ in range(draw(st.integers(0, 6))):
        if present and draw(st.booleans()):
            row, weight = present[draw(st.integers(0, len(present) - 1))], -1
            if draw(st.integers(0, 3)) == 0:
                weight = -sum(each is row or repr(each) == repr(row) for each in present)
        else:
            row, weight = draw(rows), draw(st.sampled_from([1, 1, 1, 2]))
        for _ in range(abs(weight)):
            if weight > 0:
                present.append(row)
            else:
                present.pop(next(at for at, each in enumerate(present) if repr(each) == repr(row)))
        changes.append({**row, "_weight": weight})
    return changes


@settings(max_examples=examples(18), deadline=None)
@given(how=st.sampled_from(sorted(SQL)), count=st.integers(1, 8), data=st.data())
def test_the_sum_of_changes_is_the_join_of_the_tables_after_every_batch(how, count, data):
    operator = TableJoin(left_on=("k", "f"), right_on=("k", "g"), how=how)
    subject = Restarted(operator, (LEFT, RIGHT))
    left, right, total = [], [], rows_of(None)
    for _ in range(count):
        arrived = [
            table_of(data.draw(batches(LEFT_ROWS, left)), stamped(LEFT)),
            table_of(data.draw(batches(RIGHT_ROWS, right)), stamped(RIGHT)),
        ]
        arrived = [each if each.num_rows or data.draw(st.booleans()) else None for each in arrived]
        step = subject.advance(arrived, (0, 0), data.draw(RESTARTS))
        if step.changes is not None:
            assert all(step.changes["_weight"].to_pylist())
            assert len(rows_of(step.changes)) == step.changes.num_rows
        add(total, rows_of(step.changes))
        assert total == judged(how, left, right)


@settings(max_examples=examples(18), deadline=None)
@given(how=st.sampled_from(sorted(SQL)), data=st.data())
def test_what_comes_out_of_a_step_does_not_depend_on_the_order_of_what_came_in(how, data):
    operator = TableJoin(left_on=("k", "f"), right_on=("k", "g"), how=how)
    left, right = [], []
    history = [(data.draw(batches(LEFT_ROWS, left)), data.draw(batches(RIGHT_ROWS, right))) for _ in range(3)]
    outputs = []
    for shuffle in (False, True):
        state, changes = operator.new_state((LEFT, RIGHT)), []
        for rows in history:
            mixed = [data.draw(st.permutations(each)) if shuffle else each for each in rows]
            step = state.advance(
                [table_of(mixed[0], stamped(LEFT)), table_of(mixed[1], stamped(RIGHT))], (0, 0)
            )
            changes.append(None if step.changes is None else step.changes.drop_columns(list(STAMPS[:-1])))
        outputs.append(changes)
    assert [repr(each and each.to_pydict()) for each in outputs[0]] == [
        repr(each and each.to_pydict()) for each in outputs[1]
    ]


@settings(max_examples=examples(12), deadline=None)
@given(
    how=st.sampled_from(["inner", "left", "right", "full"]),
    data=st.data(),
)
def test_keys_may_be_numbers_and_columns_nothing_but_keys(how, data):
    schema = pa.schema([("n", pa.int64())])
    rows = st.fixed_dictionaries({"n": NUMBERS})
    state, left, right, total = TableJoin(left_on=("n",), right_on=("n",), how=how), [], [], rows_of(None)
    state = state.new_state((schema, schema))
    for _ in range(3):
        arrived = [table_of(data.draw(batches(rows, each)), stamped(schema)) for each in (left, right)]
        add(total, rows_of(state.advance(arrived, (0, 0)).changes))
    for name, side in (("l", left), ("r", right)):
        DATABASE.register(name, table_of(side, schema))
    joined = DATABASE.sql(f"select coalesce(l.n, r.n) n from l {how} join r on l.n = r.n")
    assert total == rows_of(joined.to_arrow_table())


@pytest.mark.parametrize("how", sorted(SQL))
def test_a_long_history_in_many_batches_is_the_join_after_every_one(how):
    chance = np.random.default_rng(5)
    subject = Restarted(TableJoin(left_on=("k", "f"), right_on=("k", "g"), how=how), (LEFT, RIGHT))
    left, right, total = [], [], rows_of(None)

    def row(schema):
        key = {"k": str(chance.integers(0, 6)), schema.names[1]: float(chance.integers(0, 4))}
        return {**dict.fromkeys(schema.names), **key}

    for restart in long_restarts(chance, range(40)):
        arrived = []
        for present, schema in ((left, LEFT), (right, RIGHT)):
            gone = [present.pop(int(chance.integers(0, len(present)))) for _ in range(len(present) // 2)]
            came = [row(schema) for _ in range(int(chance.integers(0, 12)))]
            present += came
            changes = [{**each, "_weight": -1} for each in gone] + [{**each, "_weight": 1} for each in came]
            arrived.append(table_of(changes, stamped(schema)))
        add(total, rows_of(subject.advance(arrived, (0, 0), restart).changes))
        assert total == judged(how, left, right)
