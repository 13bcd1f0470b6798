"""A stream with a table as it is: each event has the row that the table had when it came."""

import duckdb
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.joins.histories import DOUBLES, RESTARTS, TEXTS, Restarted, rows_of, table_of
from tests.property.streams.rows_that_come_and_go import stamped

from headrace.streams.operators import LatestJoin

EVENTS = pa.schema([("k", pa.float64()), ("a", pa.string())])
TABLE = pa.schema([("key", pa.float64()), ("b", pa.string())])
JOINED = """
select events.k + 0.0 as k, events.a, rows.key + 0.0 as key, rows.b,
    events._partition, events._offset, events._event_time, events._watermark
from events {how} join rows on events.k = rows.key
"""
DATABASE = duckdb.connect()


@st.composite
def steps(draw):
    """Batches of changes of a table and of events; of a key the table has one row at most."""
    present, found, offset = {}, [], 0
    for _ in range(draw(st.integers(1, 6))):
        changes = []
        for _ in range(draw(st.integers(0, 5))):
            row = {"key": draw(DOUBLES), "b": draw(TEXTS)}
            name = repr(0.0 if row["key"] == 0 else row["key"])
            if name in present:
                changes.append({**present.pop(name), "_weight": -1})
            if draw(st.booleans()):
                present[name] = row
                changes.append({**row, "_weight": 1})
        events = []
        for _ in range(draw(st.integers(0, 4))):
            offset += 1
            stamps = {"_partition": 0, "_offset": offset, "_event_time": offset, "_watermark": None}
            events.append({"k": draw(DOUBLES), "a": draw(TEXTS), **stamps, "_weight": 1})
        found.append((events, changes, list(present.values()), draw(RESTARTS)))
    return found


@settings(max_examples=examples(36), deadline=None)
@given(how=st.sampled_from(["inner", "left"]), history=steps())
def test_each_event_has_the_row_that_the_table_has_when_it_comes(how, history):
    subject = Restarted(LatestJoin(left_on=("k",), right_on=("key",), how=how), (EVENTS, TABLE))
    for events, changes, present, restart in history:
        arrived = [table_of(events, stamped(EVENTS)), table_of(changes, stamped(TABLE))]
        step = subject.advance([each if each.num_rows else None for each in arrived], (0, 0), restart)
        DATABASE.register("events", arrived[0])
        DATABASE.register("rows", table_of(present, TABLE))
        wanted = DATABASE.sql(JOINED.format(how=how)).to_arrow_table()
        assert rows_of(step.changes, stamps=True) == rows_of(wanted, stamps=True)
    assert subject.state.row_count <= sum(len(changes) for _, changes, _, _ in history)
