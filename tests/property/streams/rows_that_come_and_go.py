"""Histories of tables and streams for operators with one input, and their judge."""

import duckdb
import pyarrow as pa
from hypothesis import strategies as st
from tests.property.streams.joins.histories import RESTARTS, Restarted, add, rows_of, table_of

from headrace.streams.operators.operator import stamp_fields

DATABASE = duckdb.connect()
DATABASE.execute("set timezone = 'UTC'")


def stamped(schema):
    return pa.schema([*schema, *stamp_fields()])


@st.composite
def histories(draw, rows, *, append_only=False):
    """Batches of changes, and what is there after each; a row goes only if it is there."""
    present, batches = [], []
    for _ in range(draw(st.integers(1, 5))):
        changes = []
        for _ in range(draw(st.integers(0, 6))):
            if present and not append_only and draw(st.booleans()):
                row, weight = present.pop(draw(st.integers(0, len(present) - 1))), -1
            else:
                row, weight = draw(rows), draw(st.sampled_from([1, 1, 1, 2]))
                present += [row] * weight
            changes.append({**row, "_weight": weight})
        batches.append((changes, list(present), draw(RESTARTS)))
    return batches


def check(operator, schema, history, sql):
    """The sum of changes is what SQL makes of `rows`, after every batch."""
    subject, total = Restarted(operator, [schema]), rows_of(None)
    for changes, present, restart in history:
        arrived = table_of(changes, stamped(schema))
        step = subject.advance([arrived if arrived.num_rows else None], (0,), restart)
        if step.changes is not None:
            assert all(step.changes["_weight"].to_pylist())
            assert len(rows_of(step.changes)) == step.changes.num_rows
        add(total, rows_of(step.changes))
        DATABASE.register("rows", table_of(present, schema))
        assert total == rows_of(_plain(DATABASE.sql(sql).to_arrow_table(), operator.result([schema])))
    return subject.state


def outputs(operator, schema, batches):
    """What each step puts out, as text."""
    state, found = operator.new_state([schema]), []
    for changes in batches:
        step = state.advance([table_of(changes, stamped(schema))], (0,))
        found.append(repr(step.changes and step.changes.to_pydict()))
    return found


def _plain(table, schema):
    return pa.table([table[each.name].cast(each.type) for each in schema], schema=schema)
