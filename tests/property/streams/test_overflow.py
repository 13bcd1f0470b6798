"""Sums that leave their type: whatever the batches, the results are those that fit, and no others."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.by_hand import NAMES, by_hand
from tests.property.streams.streams_of_events import (
    END,
    WINDOWS,
    View,
    operator_of,
    rows_of,
    view_rows,
    watermark_after,
)
from tests.property.streams.test_windows import batches, partials

HUGE = st.sampled_from([2**63 - 1, -(2**63), 2**62, -(2**62), 1, -1, None])
EVENTS = st.tuples(
    st.sampled_from("ab"), st.none(), st.none(), HUGE, st.none(), st.integers(0, 2), st.integers(0, 60)
)


@settings(max_examples=examples(36))
@given(
    window=WINDOWS,
    events=st.lists(EVENTS, max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    lateness=st.integers(0, 60),
    emit=st.sampled_from(["close", "update"]),
    keep=st.sampled_from([0, 10, 1000]),
)
def test_after_every_batch_just_the_results_that_fit_are_there(window, events, cuts, lateness, emit, keep):
    operator = operator_of(window, ("text",), NAMES, emit=emit, correct_for_us=keep)
    rows, state, view = rows_of(events, lateness), operator.new_state(), View()
    for begin, end in batches(events, cuts):
        step = state.advance(partials(operator, rows, begin, end, 2), watermark_after(events, end, lateness))
        view.apply(step.changes)
        if state.watermark_us > -(1 << 63):
            assert view_rows(view) == by_hand(operator, rows.slice(0, end).to_pylist(), state.watermark_us)
    view.apply(state.advance([], END).changes)
    assert view_rows(view) == by_hand(operator, rows.to_pylist())
