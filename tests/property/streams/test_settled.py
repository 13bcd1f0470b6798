"""Rows of a stream that takes rows back come out once, when the watermark has passed them."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.joins.histories import (
    DOUBLES,
    NEVER,
    RESTARTS,
    TEXTS,
    Restarted,
    logs,
    readings,
    rows_of,
    table_of,
)
from tests.property.streams.rows_that_come_and_go import stamped

from headrace.streams.operators import Settled

SCHEMA = pa.schema([("k", pa.float64()), ("a", pa.string()), ("xs", pa.list_(pa.int64()))])
ROWS = st.fixed_dictionaries({"k": DOUBLES, "a": TEXTS, "xs": st.sampled_from([None, [], [1, None]])})
OTHERS = st.sampled_from(["another", "", None])


@st.composite
def corrected(draw, log):
    """A reading of a log in which rows are taken back, and given out again, until the watermark passes."""
    held, found = [], []
    for (arrived,), (watermark,) in draw(readings((log,))):
        rows = list(arrived)
        held += arrived
        for place, row in enumerate(held):
            if draw(st.integers(0, 3)) == 0:
                again = {**row, "a": draw(OTHERS)}
                rows += [{**row, "_weight": -1}, again]
                held[place] = again
        held = [row for row in held if row["_event_time"] >= watermark]
        found.append((draw(st.permutations(rows)), watermark))
    return found


@settings(max_examples=examples(30), deadline=None)
@given(log=logs(ROWS), wait=st.sampled_from([0, 4]), data=st.data())
def test_what_is_left_of_each_row_comes_out_once_in_the_order_of_the_log(log, wait, data):
    subject = Restarted(Settled(wait), (SCHEMA,))
    given = []
    for rows, watermark in data.draw(corrected(log)):
        arrived = table_of(rows, stamped(SCHEMA))
        step = subject.advance([arrived if rows else None], [watermark], data.draw(RESTARTS))
        given += rows
        if step.changes is None:
            continue
        out = step.changes.to_pylist()
        assert all(row["_weight"] == 1 and row["_event_time"] < watermark for row in out)
        places = [(row["_event_time"], row["_partition"], row["_offset"]) for row in out]
        assert places == sorted(places)
        expected = [{**row, "_watermark": _less(row["_watermark"], wait)} for row in given]
        new = [row for row in expected if row["_event_time"] < watermark]
        assert rows_of(step.changes, stamps=True) == rows_of(table_of(new, stamped(SCHEMA)), stamps=True)
        given = [row for row in given if row["_event_time"] >= watermark]
    assert not given and subject.state.row_count == 0


def _less(watermark, wait):
    return None if watermark is None or watermark == NEVER else watermark - wait


def test_a_row_that_is_behind_the_watermark_passes_at_once():
    row = {"k": 1.0, "a": "x", "xs": None, "_partition": 0, "_offset": 7, "_weight": 1}
    state = Settled(0).new_state((SCHEMA,))
    for time, watermark, out in ((5, 3, []), (9, 6, [5]), (2, 6, [2]), (7, 20, [7, 9])):
        rows = table_of([{**row, "_event_time": time, "_watermark": None}], stamped(SCHEMA))
        changes = state.advance([rows], [watermark]).changes
        assert ([] if changes is None else changes["_event_time"].to_pylist()) == out
    assert state.held()[0].rows == 0


@pytest.mark.parametrize("weights", [[1, 1], [1, 1, -1, 1]])
def test_equal_rows_of_one_record_come_out_as_often_as_they_are_there(weights):
    row = {"k": 1.0, "a": "x", "xs": [1], "_partition": 0, "_offset": 0, "_event_time": 1, "_watermark": None}
    state = Settled(0).new_state((SCHEMA,))
    rows = table_of([{**row, "_weight": each} for each in weights], stamped(SCHEMA))
    assert Counter(state.advance([rows], [2]).changes["_weight"].to_pylist()) == {1: 2}
