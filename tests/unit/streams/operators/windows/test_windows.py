"""Durations, and the kinds of window on a few rows each."""

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.streams.operators.rows import table_of

from headrace.errors import CorruptionError, RequestError
from headrace.streams.operators import (
    WindowOperator,
    agg,
    hopping,
    microseconds,
    session,
    sliding,
    tumbling,
)
from headrace.streams.operators.windows.windows import ends

COUNT = (("n", agg.count()),)
S = 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90 seconds", 90 * S),
        ("1 hour", 3600 * S),
        ("1 hour 30 minutes", 5400 * S),
        ("1 day, 2 hours and 1 second", (86400 + 7200 + 1) * S),
        ("250ms", 250_000),
        ("0.5 s", 500_000),
        (timedelta(minutes=2), 120 * S),
    ],
)
def test_durations(text, expected):
    assert microseconds(text) == expected


@pytest.mark.parametrize("text", ["", "5", "minutes", "1 month", "1.0000001 s", "1 minute x", 5, "-1 s"])
def test_what_is_no_duration_is_refused_with_an_example(text):
    with pytest.raises(RequestError, match="is not a duration: give a number and a unit"):
        microseconds(text)


def test_windows_that_cannot_be_are_refused():
    with pytest.raises(RequestError, match="longer than nothing"):
        tumbling("0 seconds")
    with pytest.raises(RequestError, match="would skip events"):
        hopping("1 minute", every="2 minutes")
    with pytest.raises(RequestError, match="'window_start' cannot name a column"):
        WindowOperator(tumbling("1 s"), ("window_start",), COUNT)
    with pytest.raises(RequestError, match="'a' cannot name a column"):
        WindowOperator(tumbling("1 s"), ("a",), (("a", agg.count()),))


def test_the_earliest_and_the_latest_window_of_a_row_end_before_and_after_the_epoch():
    times = np.array([-1, 0, 9, 10])
    ten = tumbling(timedelta(microseconds=10))
    assert [each.tolist() for each in ends(ten, times)] == [[0, 10, 10, 20]] * 2
    hops = hopping("6 us", every="4 us")  # ..., [-4, 2), [0, 6), [4, 10), [8, 14), ...
    assert [each.tolist() for each in ends(hops, times)] == [[2, 2, 10, 14], [2, 6, 14, 14]]
    assert [each.tolist() for each in ends(session("1 us"), times)] == [[1, 2, 11, 12]] * 2
    assert [each.tolist() for each in ends(sliding("5 us"), times)] == [[0, 1, 10, 11], [4, 5, 14, 15]]


def test_an_event_counts_in_the_windows_that_had_not_ended_when_it_came():
    """A step that does not divide the size: 4.5 s is in [0, 10) alone, which is open at 6 s."""
    operator = WindowOperator(hopping("10 seconds", every="7 seconds"), ("key",), COUNT)
    rows = table_of([4_500_000], watermark=6 * S, key=["k"])
    assert operator.classify(rows).tolist() == [0]
    state = operator.new_state()
    (change,) = state.advance([operator.partial(rows)], 10 * S).changes.to_pylist()
    assert summary(change) == (0, 10, 0, None, 1)


def test_an_event_that_missed_one_of_its_windows_counts_in_the_others():
    operator = WindowOperator(hopping("10 seconds", every="5 seconds"), ("key",), COUNT)
    state = operator.new_state()
    on_time, late = table_of([1 * S, 7 * S], key=["k", "k"]), table_of([2 * S], watermark=7 * S, key=["k"])
    first = state.advance([operator.partial(on_time)], 7 * S).changes
    assert [summary(each) for each in first.to_pylist()] == [(-5, 5, 0, None, 1)]
    assert operator.classify(late).tolist() == [2]
    second = state.advance([operator.partial(late)], 10 * S).changes
    assert [summary(each) for each in second.to_pylist()] == [(0, 10, 0, None, 3)]


def test_an_event_too_late_for_its_own_sliding_window_counts_in_those_of_later_events():
    operator = WindowOperator(sliding("10 seconds"), ("key",), COUNT)
    state = operator.new_state()
    first = state.advance([operator.partial(table_of([1 * S, 6 * S], key=["k", "k"]))], 5 * S).changes
    assert [summary(each) for each in first.to_pylist()] == [(-9, 1, 0, None, 1)]
    late = operator.partial(table_of([2 * S], watermark=5 * S, key=["k"]))
    second = state.advance([late], 7 * S).changes
    assert [summary(each) for each in second.to_pylist()] == [(-4, 6, 0, None, 3)]


def test_an_event_is_late_for_a_session_when_the_one_it_would_form_alone_had_ended():
    operator = WindowOperator(session("10 seconds"), ("key",), COUNT)
    rows = pa.concat_tables(table_of([5 * S], watermark=w, key=["k"]) for w in (15 * S, 15 * S + 1))
    assert operator.classify(rows).tolist() == [0, 2]


def test_an_event_that_is_on_time_takes_a_session_back_that_it_makes_longer():
    operator = WindowOperator(session("10 seconds"), ("key",), COUNT)
    assert steps(operator, ([0], 11), ([5], 14), ([], 16)) == [
        [(0, 10, 0, None, 1)],
        [(0, 10, 3, 1, None)],
        [(0, 15, 0, None, 2)],
    ]


def test_a_row_for_which_some_windows_are_gone_counts_in_those_that_are_kept():
    operator = WindowOperator(hopping("10 seconds", every="5 seconds"), ("key",), COUNT, keep_closed_us=2 * S)
    state = operator.new_state()
    state.advance([], 8 * S)
    step = state.advance([operator.partial(table_of([1 * S, 6 * S], key=["k", "k"]))], 8 * S)
    (dropped,) = step.dropped.to_pylist()
    assert (dropped["_window_start"], dropped["_window_end"], dropped["_on_time"]) == (-5 * S, 5 * S, 1)
    assert (dropped["_missed_windows"], dropped["_counted_from"]) == (1, 10 * S)
    changes = state.advance([], 20 * S).changes
    assert [summary(each) for each in changes.to_pylist()] == [(0, 10, 0, None, 2), (5, 15, 0, None, 1)]


def steps(operator, *steps):
    """(start, end, kind, before, after) of the changes of each step of (times in seconds, watermark)."""
    state, found = operator.new_state(), []
    for number, (times, watermark) in enumerate(steps):
        rows = table_of(
            [at * S for at in times], partition=number, key=pa.array(["k"] * len(times), pa.string())
        )
        changes = state.advance([operator.partial(rows)], watermark * S).changes
        found.append([] if changes is None else [summary(each) for each in changes.to_pylist()])
    return found


def summary(change):
    bounds = [int(change[name].timestamp()) for name in ("window_start", "window_end")]
    return (*bounds, change["kind"], *(each and each["n"] for each in (change["before"], change["after"])))


def test_a_hopping_window_counts_each_event_in_every_window_it_is_in():
    operator = WindowOperator(hopping("10 seconds", every="5 seconds"), ("key",), COUNT)
    assert steps(operator, ([1, 7, 12], 0), ([], 10), ([], 100)) == [
        [],
        [(-5, 5, 0, None, 1), (0, 10, 0, None, 2)],
        [(5, 15, 0, None, 2), (10, 20, 0, None, 1)],
    ]


def test_a_late_event_corrects_the_windows_that_were_published():
    operator = WindowOperator(
        hopping("10 seconds", every="5 seconds"), ("key",), COUNT, correct_for_us=60 * S
    )
    assert steps(operator, ([1, 7], 10), ([2], 10)) == [
        [(-5, 5, 0, None, 1), (0, 10, 0, None, 2)],
        [(-5, 5, 2, 1, 2), (0, 10, 2, 2, 3)],
    ]


def test_early_results_are_updated_and_a_close_changes_nothing():
    operator = WindowOperator(tumbling("10 seconds"), ("key",), COUNT, emit="update", keep_closed_us=60 * S)
    assert steps(operator, ([1, 2], 0), ([3], 0), ([], 10), ([4], 10)) == [
        [(0, 10, 1, None, 2)],
        [(0, 10, 1, 2, 3)],
        [],
        [(0, 10, 2, 3, 4)],
    ]


def test_events_exactly_the_gap_apart_are_one_session_and_it_closes_when_none_can_join():
    operator = WindowOperator(session("10 seconds"), ("key",), COUNT)
    assert steps(operator, ([0, 10, 21], 0), ([], 20), ([], 21), ([], 32)) == [
        [],
        [],
        [(0, 20, 0, None, 2)],
        [(21, 31, 0, None, 1)],
    ]


def test_a_late_event_joins_two_published_sessions():
    operator = WindowOperator(session("10 seconds"), ("key",), COUNT, correct_for_us=60 * S)
    assert steps(operator, ([0, 18], 40), ([9], 40), ([28], 40), ([], 41)) == [
        [(0, 10, 0, None, 1), (18, 28, 0, None, 1)],
        [(0, 10, 3, 1, None), (18, 28, 3, 1, None), (0, 28, 2, None, 3)],
        [(0, 28, 3, 3, None), (0, 38, 2, None, 4)],
        [],
    ]


def test_a_sliding_window_looks_back_from_each_event():
    operator = WindowOperator(sliding("10 seconds"), ("key",), COUNT, correct_for_us=60 * S)
    assert steps(operator, ([1, 5, 11], 20), ([4], 20)) == [
        [(-9, 1, 0, None, 1), (-5, 5, 0, None, 2), (1, 11, 0, None, 2)],
        [(-6, 4, 2, None, 2), (-5, 5, 2, 2, 3), (1, 11, 2, 2, 3)],
    ]


@pytest.mark.parametrize(
    "window", [tumbling("10 s"), hopping("10 s", every="5 s"), session("5 s"), sliding("10 s")]
)
@pytest.mark.parametrize("emit", ["close", "update"])
def test_state_is_let_go_when_nothing_can_change_it(window, emit):
    operator = WindowOperator(window, ("key",), COUNT, emit=emit, keep_closed_us=20 * S)
    state, held = operator.new_state(), []
    for at in range(0, 600, 4):
        rows = table_of([at * S, (at + 1) * S], key=["a", f"user-{at}"])
        state.advance([operator.partial(rows)], (at - 2) * S)
        held.append(state.row_count)
    assert max(held[80:]) <= max(held[20:80]) <= 80
    for at in (2000, 3000):
        state.advance([], at * S)
    assert state.row_count == 0


def test_rows_that_find_their_state_gone_are_dropped_and_told():
    operator = WindowOperator(tumbling("10 seconds"), ("key",), COUNT, keep_closed_us=20 * S)
    state = operator.new_state()
    state.advance([operator.partial(table_of([100 * S], key=["a"]))], 100 * S)
    back = operator.partial(table_of([1 * S, 2 * S, 85 * S, 105 * S], key=["b", "b", "b", "b"]))
    step = state.advance([back], 100 * S)
    assert step.corrected_rows == 1
    (dropped,) = step.dropped.to_pylist()
    assert (dropped["key"], dropped["_on_time"], dropped["_corrected"]) == ("b", 2, 0)
    assert [summary(each) for each in step.changes.to_pylist()] == [(80, 90, 2, None, 1)]


def test_the_watermark_never_goes_back():
    operator = WindowOperator(tumbling("10 seconds"), ("key",), COUNT)
    state = operator.new_state()
    state.advance([], 50)
    state.advance([], 20)
    state.advance([], None)
    assert state.watermark_us == 50


def test_stored_state_of_another_version_or_damaged_is_refused():
    operator = WindowOperator(tumbling("10 seconds"), ("key",), COUNT)
    stored = operator.new_state().snapshot()
    with pytest.raises(CorruptionError, match="rebuild the view"):
        operator.load(stored.replace(b"headrace.state", b"headrace.stale"), ())
    with pytest.raises(CorruptionError, match="cannot be read"):
        operator.load(stored[: len(stored) // 2], ())


def test_results_are_published_at_the_very_microsecond_and_not_before():
    for window, due in (
        (session("10 seconds"), 10 * S + 1),
        (sliding("10 seconds"), 1),
        (tumbling("1 s"), S),
    ):
        operator = WindowOperator(window, ("key",), COUNT)
        state = operator.new_state()
        assert state.advance([operator.partial(table_of([0], key=["a"]))], due - 1).changes is None
        assert state.advance([], due).changes.num_rows == 1


@pytest.mark.parametrize(("behind", "dropped"), [(20 * S, True), (20 * S - 1, False)])
def test_a_row_is_dropped_from_the_microsecond_at_which_its_state_is_gone(behind, dropped):
    operator = WindowOperator(tumbling("10 seconds"), ("key",), COUNT, keep_closed_us=20 * S)
    state = operator.new_state()
    partial = operator.partial(table_of([0], key=["a"]))
    state.advance([partial], 10 * S + behind)
    step = state.advance([partial], None)
    assert (step.dropped is not None, state.row_count == 0) == (dropped, dropped)
    if dropped:
        assert step.changes is None
    else:
        assert [summary(each) for each in step.changes.to_pylist()] == [(0, 10, 2, 1, 2)]
