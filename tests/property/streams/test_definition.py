"""The definition itself is judged: by SQL on the same rows, and by the statistics of Python."""

import sqlite3
import statistics
from fractions import Fraction

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples

from headrace.streams.operators import Hopping, Session, Sliding, Tumbling, WindowOperator, agg, recompute
from headrace.streams.operators.windows.definition import fates

NUMBERS = st.one_of(
    st.none(), st.integers(-5, 5), st.sampled_from([2**63 - 1, -(2**63), 2**62, -(2**62), 2**53 + 1])
)
# Key, number, partition, event time, and how far its partition's watermark is ahead of it.
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["a", None]),
        NUMBERS,
        st.integers(0, 1),
        st.integers(-12, 12),
        st.one_of(st.none(), st.integers(-4, 20)),
    ),
    max_size=15,
)
LONGS = st.integers(-(2**63), 2**63 - 1)
SIZES = st.integers(1, 10)
WINDOWS = st.one_of(  # short ones, so that the events of a few microseconds meet every edge of them
    st.builds(Tumbling, SIZES),
    st.tuples(SIZES, SIZES).map(lambda each: Hopping(max(each), min(each))),
    st.builds(Sliding, SIZES),
    st.builds(Session, st.integers(1, 4)),
)
CORRECT_FOR = st.sampled_from([0, 0, 1, 7])
AGGREGATES = (
    ("n", agg.count()),
    ("n_i", agg.count("i")),
    ("sum_i", agg.sum("i")),
    ("min_i", agg.min("i")),
    ("max_i", agg.max("i")),
)

# SQLite refuses a sum beyond 64 bits, so the two halves of the numbers are summed for themselves.
HIGH = "(sum(i >> 32) + (sum(i & 4294967295) >> 32))"
VALUES = f"count(*), count(i), ({HIGH} << 32) | (sum(i & 4294967295) & 4294967295), min(i), max(i)"
SHOWN = f"""ifnull({HIGH} BETWEEN -2147483648 AND 2147483647, true)
            AND (:watermark IS NULL OR ended <= :watermark)"""

# Each row once for every window of fixed bounds that it is in. SQLite's % has the sign of its left side.
PLACED = """
    WITH RECURSIVE steps (back) AS (SELECT 0 UNION ALL SELECT back + :step FROM steps WHERE back < :size),
    placed AS (
        SELECT events.*, t - ((t % :step) + :step) % :step - back AS start FROM events, steps
    ),
    inside AS (SELECT *, start + :size AS ended FROM placed WHERE t < start + :size)
"""
RESULTS_OF_HOPPING = f"""
    {PLACED}
    SELECT key, NULL, NULL, start, ended, {VALUES} FROM inside
    WHERE w IS NULL OR w < ended + :c GROUP BY key, start HAVING {SHOWN}
"""
RESULTS_OF_SLIDING = f"""
    WITH pairs AS (
        SELECT own.key, own.p, own.o, own.t, own.t + 1 AS ended, other.i
        FROM events AS own JOIN events AS other
            ON other.key IS own.key AND other.t > own.t - :size AND other.t <= own.t
        WHERE (own.w IS NULL OR own.w < own.t + 1 + :c) AND (other.w IS NULL OR other.w < own.t + 1 + :c)
    )
    SELECT key, p, o, t - :size, t, {VALUES} FROM pairs GROUP BY p, o HAVING {SHOWN}
"""
RESULTS_OF_SESSIONS = f"""
    WITH counted AS (SELECT * FROM events WHERE w IS NULL OR w < t + :size + 1 + :c),
    gaps AS (
        SELECT *, ifnull(t - lag(t) OVER (PARTITION BY key ORDER BY t, p, o) > :size, true) AS begins
        FROM counted
    ),
    numbered AS (SELECT *, sum(begins) OVER (PARTITION BY key ORDER BY t, p, o) AS session FROM gaps),
    sessions AS (
        SELECT *, max(t) OVER (PARTITION BY key, session) + :size + 1 AS ended FROM numbered
    )
    SELECT key, NULL, NULL, min(t), max(t) + :size, {VALUES} FROM sessions
    GROUP BY key, session HAVING {SHOWN}
"""
# Of each row: how many windows it missed, how many had ended, the start of the first one missed, and
# the first end of those in which it counts.
FATES_OF_HOPPING = f"""
    {PLACED}
    SELECT ifnull(sum(w >= ended + :c), 0), ifnull(sum(w >= ended), 0),
        min(start) FILTER (WHERE w >= ended + :c), min(ended) FILTER (WHERE w < ended + :c)
    FROM inside GROUP BY p, o ORDER BY row
"""
FATES_BY_ITS_OWN_END = """
    SELECT ifnull(w >= {end} + :c, 0), ifnull(w >= {end}, 0),
        CASE WHEN w >= {end} + :c THEN {start} END, {kept}
    FROM events ORDER BY row
"""
FATES_OF_SLIDING = FATES_BY_ITS_OWN_END.format(
    end="(t + 1)", start="t - :size", kept="CASE WHEN w - :c < t + :size THEN w - :c END"
)
FATES_OF_SESSIONS = FATES_BY_ITS_OWN_END.format(end="(t + :size + 1)", start="t", kept="NULL")


def rows_of(events):
    """The events as rows; each has an offset of its own."""
    columns = list(zip(*events, strict=True)) or [[]] * 5
    keys, numbers, partitions, times, leads = columns
    watermarks = [None if lead is None else time + lead for time, lead in zip(times, leads, strict=True)]
    return pa.table(
        {
            "key": pa.array(keys, pa.string()),
            "i": pa.array(numbers, pa.int64()),
            "_partition": pa.array(partitions, pa.int32()),
            "_offset": pa.array(range(len(events)), pa.int64()),
            "_event_time": pa.array(times, pa.int64()),
            "_watermark": pa.array(watermarks, pa.int64()),
        }
    )


def in_sql(query, rows, window, correct_for, watermark=None):
    """What the query finds in a table `events` of these rows."""
    size = window.gap_us if isinstance(window, Session) else window.size_us
    values = {"size": size, "step": getattr(window, "step_us", 0), "c": correct_for, "watermark": watermark}
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE TABLE events (key TEXT, i INT, p INT, o INT, t INT, w INT, row INT)")
        numbered = [(*each.values(), number) for number, each in enumerate(rows.to_pylist())]
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", numbered)
        return connection.execute(query, values).fetchall()
    finally:
        connection.close()


def in_batch(operator, rows, watermark):
    """The results of `recompute` in the form of the queries' rows."""
    results = recompute(operator, rows, watermark)
    for name in ("window_start", "window_end"):
        results = results.set_column(results.column_names.index(name), name, results[name].cast(pa.int64()))
    names = ("key", "_partition", "_offset", "window_start", "window_end", *dict(AGGREGATES))
    return [tuple(each.get(name) for name in names) for each in results.to_pylist()]


def results_query(window):
    queries = {Sliding: RESULTS_OF_SLIDING, Session: RESULTS_OF_SESSIONS}
    return queries.get(type(window), RESULTS_OF_HOPPING)


@settings(max_examples=examples(80))
@given(
    window=WINDOWS,
    events=EVENTS,
    correct_for=CORRECT_FOR,
    watermark=st.one_of(st.none(), st.integers(-14, 26)),
)
def test_sql_finds_the_results_that_the_definition_does(window, events, correct_for, watermark):
    operator = WindowOperator(window, ("key",), AGGREGATES, correct_for_us=correct_for)
    rows = rows_of(events)
    found = in_sql(results_query(window), rows, window, correct_for, watermark)
    assert sorted(found, key=repr) == sorted(in_batch(operator, rows, watermark), key=repr)


@settings(max_examples=examples(40))
@given(window=WINDOWS, events=EVENTS, correct_for=CORRECT_FOR)
def test_sql_finds_what_the_definition_counts_as_late(window, events, correct_for):
    operator = WindowOperator(window, ("key",), AGGREGATES, correct_for_us=correct_for)
    queries = {Sliding: FATES_OF_SLIDING, Session: FATES_OF_SESSIONS}
    query = queries.get(type(window), FATES_OF_HOPPING)
    rows = rows_of(events)
    found = in_sql(query, rows, window, correct_for)
    for (missed, ended, start, kept), fate in zip(found, fates(operator, rows), strict=True):
        assert fate.outcome == ("dropped" if missed else "corrected" if ended else "on_time")
        if missed:
            assert fate.headers["missed_windows"] == missed
            assert fate.headers["window_start_us"] == start
            assert fate.headers.get("counted_from_us") == kept
            assert fate.headers.get("every_us") == (window.step_us if missed > 1 else None)


@given(values=st.lists(st.one_of(st.integers(2**62, 2**62 + 9), LONGS), min_size=2, max_size=8))
def test_the_variance_of_integers_is_the_double_nearest_to_the_exact_one(values):
    operator = WindowOperator(Tumbling(100), (), (("variance", agg.variance("i")),))
    rows = rows_of([("a", value, 0, 0, None) for value in values])
    exact = statistics.variance([Fraction(value) for value in values])
    assert recompute(operator, rows)["variance"].to_pylist() == [float(exact)]
