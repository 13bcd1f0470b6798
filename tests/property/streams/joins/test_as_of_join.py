"""A join of a stream with a table's versions equals DuckDB's over their logs, whatever the reading."""

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

from headrace.streams.operators import AsOfJoin
from headrace.streams.operators.operator import stamp_fields

EVENTS = pa.schema([("k", pa.float64()), ("a", pa.string())])
VERSIONS = pa.schema([("k", pa.float64()), ("b", pa.decimal128(19, 2)), ("_deleted", pa.bool_())])
KEYS = st.one_of(st.just(1.5), DOUBLES)
EVENT_ROWS = st.fixed_dictionaries({"k": KEYS, "a": TEXTS})
VERSION_ROWS = st.fixed_dictionaries(
    {"k": KEYS, "b": DECIMALS, "_deleted": st.sampled_from([False, False, True, None])}
)
INPUTS = st.tuples(logs(EVENT_ROWS), logs(VERSION_ROWS))
DATABASE = duckdb.connect()
JOINED = """
with e as (select * from events where _watermark is null or _watermark <= _event_time + {keep}),
     v as (select * from versions where _watermark is null or _watermark <= _event_time + {keep}),
     seen as (select v.*, e._partition as event_partition, e._offset as event_offset
              from e join v on e.k = v.k and {sees}),
     valid as (select *, row_number() over (partition by event_partition, event_offset
                                            order by _event_time desc, _partition desc, _offset desc) as place
               from seen)
select e.k + 0.0, e.a, v.b, e._partition, e._offset, e._event_time, e._watermark
from e {how} join (select * from valid where place = 1 and not coalesce(_deleted, false)) v
  on e._partition = event_partition and e._offset = event_offset
"""
AS_OF = """v._event_time <= e._event_time
           and (v._watermark is null or v._watermark <= e._event_time + {correct_for})"""
LATEST = "v.batch <= e.batch"
EVENT_COUNTS = "select count(*) filter (where _watermark > _event_time + {keep}) from events"
VERSION_COUNTS = """
select count(*) filter (where _watermark > _event_time + {keep}) as gone,
       count(*) filter (where _watermark > _event_time + {correct_for}) - gone as late,
       count(*) filter (where _watermark > _event_time) - gone - late as corrected
from versions
"""
LATENESS = st.sampled_from([("drop", 0), ("correct", 0), ("correct", 4), ("correct", 100)])


def judged(operator, batches):
    """What DuckDB makes of the logs: the joined rows, what is counted, and what is put aside."""
    for name, number, schema in (("events", 0, EVENTS), ("versions", 1, VERSIONS)):
        rows = [{**row, "batch": at} for at, (arrived, _) in enumerate(batches) for row in arrived[number]]
        fields = [*schema, *stamp_fields(), ("batch", pa.int64())]
        DATABASE.register(name, table_of(rows, pa.schema(fields)))
    kept = operator.keep_us
    values = {
        "keep": 1 << 40 if kept is None else max(kept, operator.correct_for_us),
        "correct_for": operator.correct_for_us,
        "how": operator.how,
    }
    sees = AS_OF.format(**values) if operator.mode == "as_of" else LATEST
    joined = rows_of(DATABASE.sql(JOINED.format(sees=sees, **values)).to_arrow_table(), stamps=True)
    old = DATABASE.sql(EVENT_COUNTS.format(**values)).fetchall()[0][0]
    gone, late, corrected = DATABASE.sql(VERSION_COUNTS.format(**values)).fetchall()[0]
    if operator.mode == "latest":
        late = corrected = 0
    counts = Counter({(0, "dropped"): old, (1, "dropped"): gone + late, (1, "corrected"): corrected})
    return joined, +counts, +Counter({(0, "state gone"): old, (1, "state gone"): gone, (1, "late"): late})


def check(operator, batches, restarts):
    expected, counts, reasons = judged(operator, batches)
    total, counted, aside = run(operator, (EVENTS, VERSIONS), batches, restarts)
    assert total == expected
    assert counted == counts
    assert Counter((number, reason) for number, _, _, reason in aside.elements()) == reasons


@settings(max_examples=examples(30), deadline=None)
@given(
    how=st.sampled_from(["inner", "left"]), lateness=LATENESS, keep=st.sampled_from([None, 0, 5, 50]),
    inputs=INPUTS, data=st.data(),
)  # fmt: skip
def test_any_reading_gives_every_event_the_version_valid_at_its_time(how, lateness, keep, inputs, data):
    late, correct_for = lateness
    operator = AsOfJoin(
        left_on=("k",), right_on=("k",), how=how, late=late, correct_for_us=correct_for, keep_us=keep
    )
    for _ in range(2):
        batches = data.draw(readings(inputs))
        check(operator, batches, [data.draw(RESTARTS) for _ in batches])


@settings(max_examples=examples(18), deadline=None)
@given(
    how=st.sampled_from(["inner", "left"]), keep=st.sampled_from([None, 0, 5, 50]), inputs=INPUTS,
    data=st.data(),
)  # fmt: skip
def test_latest_gives_every_event_the_newest_version_that_had_arrived(how, keep, inputs, data):
    operator = AsOfJoin(left_on=("k",), right_on=("k",), how=how, mode="latest", keep_us=keep)
    batches = data.draw(readings(inputs))
    check(operator, batches, [data.draw(RESTARTS) for _ in batches])


@pytest.mark.parametrize("mode", ["as_of", "latest"])
@pytest.mark.parametrize(("late", "correct_for"), [("drop", 0), ("correct", 60)])
@pytest.mark.parametrize("keep", [None, 0, 100])
def test_long_streams_in_many_batches_give_what_sql_gives(mode, late, correct_for, keep):
    if mode == "latest" and late == "correct":
        pytest.skip("what latest gives is never corrected")
    chance = np.random.default_rng(correct_for)

    def event(chance):
        return {"k": [1.0, 2.0, float("nan"), None, *range(3, 40)][int(chance.zipf(1.5)) % 41], "a": "x"}

    def version(chance):
        return {"k": event(chance)["k"], "b": int(chance.integers(0, 5)), "_deleted": chance.random() < 0.2}

    inputs = (long_logs(chance, event), long_logs(chance, version))
    operator = AsOfJoin(
        left_on=("k",), right_on=("k",), how="left", mode=mode, late=late, correct_for_us=correct_for,
        keep_us=keep,
    )  # fmt: skip
    for _ in range(2):
        batches = long_reading(chance, inputs)
        check(operator, batches, long_restarts(chance, batches))
