"""A row counts in every window that had not ended when it came, and in no other: whatever the windows."""

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.by_hand import NAMES, by_hand, counters_by_hand, counts
from tests.property.streams.streams_of_events import (
    END,
    EVENTS,
    WINDOWS,
    View,
    operator_of,
    rows_of,
    view_rows,
    watermark_after,
)
from tests.property.streams.test_windows import batches, partials

from headrace.streams.operators import Hopping, Session, Sliding, pack_buckets, unpack

# Every size with every step: ones that do not divide it, tiny ones, and the size itself.
OVERLAPPING = st.integers(1, 40).flatmap(lambda size: st.builds(Hopping, st.just(size), st.integers(1, size)))
ANY_WINDOW = st.one_of(OVERLAPPING, OVERLAPPING, WINDOWS)
KEPT = st.sampled_from([0, 0, 3, 20, 1000])
EMIT = st.sampled_from(["close", "update"])
STREAMS = st.lists(EVENTS, max_size=40)
CUTS = st.lists(st.integers(0, 40), max_size=4)


def event(time, partition=0):
    return ("a", None, None, 1, None, partition, time)


@settings(max_examples=examples(60))
@given(window=ANY_WINDOW, events=STREAMS, cuts=CUTS, lateness=st.integers(0, 60), emit=EMIT, keep=KEPT)
@example(Hopping(100, 70), [event(60), event(45)], [], 0, "close", 0)
@example(Session(10), [event(0), event(12), event(5)], [1, 2], 0, "close", 0)
@example(Sliding(10), [event(0), event(12), event(5), event(13)], [1, 2, 3], 0, "close", 0)
def test_after_every_batch_the_results_are_those_one_would_count_by_hand(
    window, events, cuts, lateness, emit, keep
):
    operator = operator_of(window, ("text",), NAMES, emit=emit, correct_for_us=keep)
    rows, state, view = rows_of(events, lateness), operator.new_state(), View()
    for begin, end in batches(events, cuts):
        step = state.advance(partials(operator, rows, begin, end, 2), watermark_after(events, end, lateness))
        view.apply(step.changes)
        assert step.dropped is None and step.corrected_rows == 0
        if state.watermark_us > -(1 << 63):
            assert view_rows(view) == by_hand(operator, rows.slice(0, end).to_pylist(), state.watermark_us)
    view.apply(state.advance([], END).changes)
    assert view_rows(view) == by_hand(operator, rows.to_pylist())
    if keep == 0:
        assert 2 not in view.kinds


@settings(max_examples=examples(32))
@given(window=ANY_WINDOW, events=STREAMS, lateness=st.integers(0, 60), keep=KEPT)
def test_a_row_is_counted_once_by_the_worst_that_became_of_it(window, events, lateness, keep):
    operator = operator_of(window, ("text",), NAMES, correct_for_us=keep)
    rows = rows_of(events, lateness)
    classes = operator.classify(rows).tolist()
    found = {name: classes.count(number) for number, name in enumerate(("on_time", "corrected", "dropped"))}
    assert found == counters_by_hand(operator, rows.to_pylist())


@settings(max_examples=examples(32))
@given(window=OVERLAPPING, events=STREAMS, lateness=st.integers(0, 60), keep=KEPT)
def test_of_a_dropped_row_it_is_told_which_windows_it_missed_and_from_when_it_counts(
    window, events, lateness, keep
):
    operator = operator_of(window, ("text",), NAMES, correct_for_us=keep)
    rows = rows_of(events, lateness)
    dropped = rows.filter(pa.array(operator.classify(rows) == 2))
    for row, missed in zip(dropped.to_pylist(), operator.missed(dropped).to_pylist(), strict=True):
        inside = range(row["_event_time"] + 1, row["_event_time"] + window.size_us + 1)
        ends = [end for end in inside if (end - window.size_us) % window.step_us == 0]
        lost = [end for end in ends if not counts(operator, row, end)]
        kept = [end for end in ends if counts(operator, row, end)]
        assert missed == {
            "_window_start": lost[0] - window.size_us,
            "_window_end": lost[0],
            "_missed_windows": len(lost),
            "_every": window.step_us,
            "_counted_from": kept[0] if kept else None,
        }


@settings(max_examples=examples(24))
@given(
    window=ANY_WINDOW, events=STREAMS, cuts=st.tuples(CUTS, CUTS), emit=EMIT, keep=KEPT,
    closed=st.sampled_from([0, 30]), data=st.data(),
)  # fmt: skip
def test_batches_buckets_and_the_order_of_partitions_change_nothing(
    window, events, cuts, emit, keep, closed, data
):
    operator = operator_of(window, ("text",), NAMES, emit=emit, correct_for_us=keep, keep_closed_us=closed)
    rows = rows_of(events, 15)
    shuffled = data.draw(st.permutations(range(len(events))))
    by_partition = {p: [n for n, each in enumerate(events) if each[-2] == p] for p in range(3)}
    order = [by_partition[events[number][-2]].pop(0) for number in shuffled]
    arrived, states, view = (
        rows.take(pa.array(order, pa.int64())),
        [operator.new_state() for _ in "abc"],
        View(),
    )
    for begin, end in batches(order, cuts[0]):
        packed = [
            each
            for partial in partials(operator, arrived, begin, end, 3)
            for each in pack_buckets(partial, operator.keys, len(states))
        ]
        for bucket, state in enumerate(states):
            tables = [unpack(blob) for number, blob in packed if number == bucket]
            view.apply(state.advance(tables, None).changes)
    for state in states:
        view.apply(state.advance([], END).changes)
    assert view_rows(view) == by_hand(operator, rows.to_pylist())
