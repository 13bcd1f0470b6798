"""The same log gives the same results: other batches, buckets and interleavings, crashes, idle partitions."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.by_hand import by_hand
from tests.property.streams.streams_of_events import (
    END,
    EVENTS,
    KEYS,
    WINDOWS,
    View,
    as_rows,
    listed,
    operator_of,
    rows_of,
    view_rows,
    watermark_after,
)
from tests.property.streams.test_windows import CUTS, NAMES, STREAMS, batches, partials

from headrace.streams.operators import Session, Tumbling, pack_buckets, part_of_snapshot, recompute, unpack

OPTIONS = st.fixed_dictionaries(
    {
        "emit": st.sampled_from(["close", "update"]),
        "correct_for_us": st.sampled_from([0, 9, 200]),
        "keep_closed_us": st.sampled_from([0, 30]),
    }
)


def run_in_buckets(operator, rows, order, cuts, count):
    """The view when rows arrive in this order, by way of packed buckets with a state each."""
    states, view = [operator.new_state() for _ in range(count)], View()
    arrived = rows.take(pa.array(order, pa.int64()))
    for begin, end in batches(order, cuts):
        packed = [
            each
            for partial in partials(operator, arrived, begin, end, 3)
            for each in pack_buckets(partial, operator.keys, count)
        ]
        for bucket, state in enumerate(states):
            tables = [unpack(blob) for number, blob in packed if number == bucket]
            view.apply(state.advance(tables, None).changes)
    for state in states:
        view.apply(state.advance([], END).changes)
    return view_rows(view)


@settings(max_examples=examples(16))
@given(
    window=WINDOWS, keys=KEYS, names=NAMES, events=STREAMS, options=OPTIONS,
    cuts=st.tuples(CUTS, CUTS), counts=st.tuples(st.integers(1, 3), st.integers(1, 9)), data=st.data(),
)  # fmt: skip
def test_any_split_and_interleaving_gives_identical_results(
    window, keys, names, events, options, cuts, counts, data
):
    operator, rows = operator_of(window, keys, names, **options), rows_of(events, 15)
    order = data.draw(st.permutations(range(len(events))))
    # Within a partition the log's order stands; between partitions nothing is promised.
    by_partition = {p: [n for n, each in enumerate(events) if each[-2] == p] for p in range(3)}
    shuffled = [by_partition[events[number][-2]].pop(0) for number in order]
    straight = run_in_buckets(operator, rows, list(range(len(events))), cuts[0], counts[0])
    assert run_in_buckets(operator, rows, shuffled, cuts[1], counts[1]) == straight
    assert straight == as_rows(recompute(operator, rows))


@settings(max_examples=examples(24))
@given(
    window=WINDOWS, keys=KEYS, names=NAMES, events=STREAMS, options=OPTIONS, cuts=CUTS,
    snapshot_at=st.integers(0, 5), crash_at=st.integers(0, 5), buckets=st.integers(1, 4),
)  # fmt: skip
def test_a_state_that_was_loaded_goes_on_like_the_one_that_was_lost(
    window, keys, names, events, options, cuts, snapshot_at, crash_at, buckets
):
    """Also from a snapshot that was spread over buckets and brought together again."""
    operator, rows, lateness = operator_of(window, keys, names, **options), rows_of(events, 15), 15
    live, deltas, snapshot, loaded = operator.new_state(), [], [], None
    steps = [*batches(events, cuts), (len(events), len(events))]
    for number, (begin, end) in enumerate(steps):
        if number == snapshot_at:
            stored, deltas = live.snapshot(), []
            snapshot = [part_of_snapshot(stored, (), each, buckets) for each in range(buckets)]
        if number == crash_at:
            loaded = operator.load(None, [*snapshot, *deltas])
        watermark = END if number == len(steps) - 1 else watermark_after(events, end, lateness)
        tables = partials(operator, rows, begin, end, 1)
        step = live.advance(tables, watermark)
        deltas.append(step.delta)
        if loaded is not None:
            again = loaded.advance(tables, watermark)
            assert listed(again.changes) == listed(step.changes)
            assert again.delta == step.delta
            assert loaded.watermark_us == live.watermark_us
    assert listed(operator.load(None, [live.snapshot()]).advance([], END).changes) == []


@settings(max_examples=examples(24))
@given(
    window=WINDOWS, names=NAMES, events=STREAMS, options=OPTIONS, cuts=CUTS,
    ahead=st.lists(st.integers(0, 60), min_size=6, max_size=6),
)  # fmt: skip
def test_when_idle_partitions_come_back_the_counters_balance(window, names, events, options, cuts, ahead):
    operator = operator_of(window, ("text",), ["n", *(each for each in names if each != "n")], **options)
    rows, state, view = rows_of(events, 15), operator.new_state(), View()
    classes = operator.classify(rows).tolist()
    counters = {"on_time": classes.count(0), "corrected": classes.count(1), "dropped": classes.count(2)}
    for (begin, end), lead in zip(batches(events, cuts), ahead, strict=False):
        # As if the partitions that lag had been idle: the watermark is ahead of some of them.
        watermark = watermark_after(events, end, 15)
        step = state.advance(
            partials(operator, rows, begin, end, 2), None if watermark is None else watermark + lead
        )
        view.apply(step.changes)
        counters["on_time"] -= step.corrected_rows
        counters["corrected"] += step.corrected_rows
        for dropped in listed(step.dropped):
            counters["on_time"] -= dropped["_on_time"]
            counters["corrected"] -= dropped["_corrected"]
            counters["dropped"] += dropped["_on_time"] + dropped["_corrected"]
    view.apply(state.advance([], END).changes)
    assert min(counters.values()) >= 0 and sum(counters.values()) == len(events)
    counted = sum(each["n"] for each in view_rows(view))
    if isinstance(window, Tumbling | Session):
        assert counted == counters["on_time"] + counters["corrected"]
    if counters["dropped"] == classes.count(2):
        assert view_rows(view) == as_rows(recompute(operator, rows))


@settings(max_examples=examples(24))
@given(window=WINDOWS, events=st.lists(EVENTS, max_size=14), keep=st.sampled_from([0, 20, 1000]))
def test_the_definition_is_what_one_would_count_by_hand(window, events, keep):
    operator = operator_of(window, ("text",), ["n", "sum_i", "min_d"], correct_for_us=keep)
    rows = rows_of(events, 20)
    assert as_rows(recompute(operator, rows)) == by_hand(operator, rows.to_pylist())
