"""The last row of each key of rows that come and go equals DuckDB's answer, whatever the batches."""

import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.joins.histories import RESTARTS, Restarted, add, rows_of, table_of
from tests.property.streams.rows_that_come_and_go import DATABASE, stamped

from headrace.streams.operators import LastRow

SCHEMA = pa.schema([("k", pa.float64()), ("a", pa.string()), ("xs", pa.list_(pa.int64()))])
LAST = """
select k + 0.0 as k, a, xs from rows qualify row_number() over (
  partition by k + 0.0 order by _event_time desc, _partition desc, _offset desc
) = 1
"""
ROW = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, math.nan, 0.0, -0.0, 1.5]),
        "a": st.sampled_from(["", "x", None]),
        "xs": st.sampled_from([None, [], [1, None]]),
        "_event_time": st.integers(0, 3),
        "_partition": st.integers(0, 1),
    }
)


@st.composite
def streams(draw, *, append_only):
    """Batches of changes, and the rows that are there at the end; each row is that of one record."""
    there, batches = [], []
    for _ in range(draw(st.integers(1, 6))):
        batch = []
        for _ in range(draw(st.integers(0, 5))):
            if there and not append_only and draw(st.booleans()):
                batch.append({**there.pop(draw(st.integers(0, len(there) - 1))), "_weight": -1})
                continue
            offset = sum(len(each) for each in batches) + len(batch)
            row = {**draw(ROW), "_offset": offset, "_watermark": None}
            there.append(row)
            batch.append({**row, "_weight": 1})
        batches.append(batch)
    return batches, there


def shown(subject, batches, restarts):
    """What a view holds that replaces the row of a key, and then removes those that are gone."""
    view = {}
    for batch, restart in zip(batches, restarts, strict=True):
        step = subject.advance([table_of(batch, stamped(SCHEMA)) if batch else None], (0,), restart)
        changes = step.changes.to_pylist() if step.changes else []
        for row in sorted(changes, key=lambda row: row["_weight"]):
            value = repr([row[name] for name in SCHEMA.names])
            if row["_weight"] > 0:
                view[repr(row["k"])] = value
            elif view.get(repr(row["k"])) == value:
                del view[repr(row["k"])]
    return sorted(view.values())


@pytest.mark.parametrize("append_only", [True, False])
@settings(max_examples=examples(24), deadline=None)
@given(data=st.data())
def test_any_cut_shows_the_last_row_of_each_key_by_the_log(append_only, data):
    batches, there = data.draw(streams(append_only=append_only))
    subject = Restarted(LastRow(("k",), append_only), [SCHEMA])
    found = shown(subject, batches, [data.draw(RESTARTS) for _ in batches])
    DATABASE.register("rows", table_of([{**row, "_weight": 1} for row in there], stamped(SCHEMA)))
    judged = DATABASE.sql(LAST).to_arrow_table().to_pylist()
    assert found == sorted(repr([row[name] for name in SCHEMA.names]) for row in judged)


@pytest.mark.parametrize("append_only", [True, False])
@settings(max_examples=examples(16), deadline=None)
@given(data=st.data())
def test_as_a_table_the_row_that_is_replaced_is_taken_back(append_only, data):
    batches, there = data.draw(streams(append_only=append_only))
    subject, total = Restarted(LastRow(("k",), append_only, as_table=True), [SCHEMA]), rows_of(None)
    for batch in batches:
        arrived = table_of(batch, stamped(SCHEMA)) if batch else None
        add(total, rows_of(subject.advance([arrived], (0,), data.draw(RESTARTS)).changes))
    DATABASE.register("rows", table_of([{**row, "_weight": 1} for row in there], stamped(SCHEMA)))
    assert total == rows_of(DATABASE.sql(LAST).to_arrow_table())


@pytest.mark.parametrize("append_only", [True, False])
def test_of_several_rows_of_one_record_the_same_is_shown_in_any_order(append_only):
    place = {"_event_time": 1, "_partition": 0, "_offset": 7, "_watermark": None, "_weight": 1}
    rows = [{"k": 1.0, "a": text, "xs": [number]} | place for number, text in enumerate(["x", "y", "x"])]

    def last(order):
        subject = Restarted(LastRow(("k",), append_only), [SCHEMA])
        return shown(subject, [[rows[number]] for number in order], [False] * len(rows))

    assert last([0, 1, 2]) == last([2, 1, 0]) == last([1, 2, 0])
