"""Every window kind against the definition: any records, keys, batching and order of arrival."""

from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.streams_of_events import (
    AGGREGATES,
    END,
    EVENTS,
    KEYS,
    WINDOWS,
    View,
    as_rows,
    operator_of,
    rows_of,
    view_rows,
    watermark_after,
)

from headrace.streams.operators import recompute
from headrace.streams.operators.windows.definition import fates

STREAMS = st.lists(EVENTS, max_size=40)
NAMES = st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=4, unique=True)
CUTS = st.lists(st.integers(0, 40), max_size=4)


def batches(events, cuts):
    edges = [0, *sorted(min(cut, len(events)) for cut in cuts), len(events)]
    return list(pairwise(edges))


def partials(operator, rows, begin, end, cut):
    """The batch as the tasks of its partitions reduce it, the first of them in two parts."""
    batch = rows.slice(begin, end - begin)
    found = []
    for partition in (2, 0, 1):
        own = batch.filter(pa.compute.equal(batch["_partition"], partition))
        middle = min(cut, own.num_rows)
        found += [operator.partial(own.slice(0, middle)), operator.partial(own.slice(middle))]
    return found


@settings(max_examples=examples(40))
@given(
    window=WINDOWS,
    keys=KEYS,
    names=NAMES,
    events=STREAMS,
    cuts=CUTS,
    lateness=st.integers(0, 130),
    emit=st.sampled_from(["close", "update"]),
    correct_for=st.sampled_from([0, 0, 7, 50, 1000]),
)
def test_at_every_step_the_view_is_the_definition(
    window, keys, names, events, cuts, lateness, emit, correct_for
):
    operator = operator_of(window, keys, names, emit=emit, correct_for_us=correct_for)
    rows, state, view = rows_of(events, lateness), operator.new_state(), View()
    for begin, end in batches(events, cuts):
        step = state.advance(partials(operator, rows, begin, end, 2), watermark_after(events, end, lateness))
        assert step.dropped is None and step.corrected_rows == 0
        view.apply(step.changes)
        if state.watermark_us > -(1 << 63):
            assert view_rows(view) == as_rows(recompute(operator, rows.slice(0, end), state.watermark_us))
    view.apply(state.advance([], END).changes)
    assert view_rows(view) == as_rows(recompute(operator, rows))
    if lateness > 120:  # then nothing is late, and every row counts
        assert not operator.classify(rows).any()
    if correct_for == 0:
        assert 2 not in view.kinds


@settings(max_examples=examples(40))
@given(
    window=WINDOWS,
    events=STREAMS,
    lateness=st.integers(0, 40),
    correct_for=st.sampled_from([0, 0, 7, 50]),
)
def test_each_row_is_counted_as_the_definition_says(window, events, lateness, correct_for):
    operator, rows = operator_of(window, (), ["n"], correct_for_us=correct_for), rows_of(events, lateness)
    found = [("on_time", "corrected", "dropped")[each] for each in operator.classify(rows)]
    assert found == [each.outcome for each in fates(operator, rows)]
