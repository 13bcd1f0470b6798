"""The same log gives the same results: other batches, buckets and interleavings, crashes, idle partitions."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
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

from headrace.streams.operators import Session, Tumbling, pack_buckets, recompute, unpack

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


@settings(max_examples=40)
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


@settings(max_examples=60)
@given(
    window=WINDOWS, keys=KEYS, names=NAMES, events=STREAMS, options=OPTIONS, cuts=CUTS,
    snapshot_at=st.integers(0, 5), crash_at=st.integers(0, 5),
)  # fmt: skip
def test_a_state_that_was_loaded_goes_on_like_the_one_that_was_lost(
    window, keys, names, events, options, cuts, snapshot_at, crash_at
):
    operator, rows, lateness = operator_of(window, keys, names, **options), rows_of(events, 15), 15
    live, deltas, snapshot, loaded = operator.new_state(), [], None, None
    steps = [*batches(events, cuts), (len(events), len(events))]
    for number, (begin, end) in enumerate(steps):
        if number == snapshot_at:
            snapshot, deltas = live.snapshot(), []
        if number == crash_at:
            loaded = operator.load(snapshot, deltas)
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


@settings(max_examples=60)
@given(
    window=WINDOWS, names=NAMES, events=STREAMS, options=OPTIONS, cuts=CUTS,
    ahead=st.lists(st.integers(0, 60), min_size=6, max_size=6),
)  # fmt: skip
def test_when_idle_partitions_come_back_the_books_balance(window, names, events, options, cuts, ahead):
    operator = operator_of(window, ("text",), ["n", *(each for each in names if each != "n")], **options)
    rows, state, view = rows_of(events, 15), operator.new_state(), View()
    classes = operator.classify(rows).tolist()
    books = {"on_time": classes.count(0), "corrected": classes.count(1), "dropped": classes.count(2)}
    for (begin, end), lead in zip(batches(events, cuts), ahead, strict=False):
        # As if the partitions that lag had been idle: the watermark is ahead of some of them.
        watermark = watermark_after(events, end, 15)
        step = state.advance(
            partials(operator, rows, begin, end, 2), None if watermark is None else watermark + lead
        )
        view.apply(step.changes)
        books["on_time"] -= step.corrected_rows
        books["corrected"] += step.corrected_rows
        for dropped in listed(step.dropped):
            books["on_time"] -= dropped["on_time"]
            books["corrected"] -= dropped["corrected"]
            books["dropped"] += dropped["on_time"] + dropped["corrected"]
    view.apply(state.advance([], END).changes)
    assert min(books.values()) >= 0 and sum(books.values()) == len(events)
    counted = sum(each["n"] for each in view_rows(view))
    if isinstance(window, Tumbling | Session):
        assert counted == books["on_time"] + books["corrected"]
    if books["dropped"] == classes.count(2):
        assert view_rows(view) == as_rows(recompute(operator, rows))


@settings(max_examples=60)
@given(window=WINDOWS, events=st.lists(EVENTS, max_size=14), keep=st.sampled_from([0, 20, 1000]))
def test_the_definition_is_what_one_would_count_by_hand(window, events, keep):
    operator = operator_of(window, ("text",), ["n", "sum_i", "min_d"], correct_for_us=keep)
    rows = rows_of(events, 20)
    assert as_rows(recompute(operator, rows)) == by_hand(operator, rows.to_pylist())


def by_hand(operator, rows):
    """The results by trying every window there could be, without sorting, slicing or grouping."""
    window, results = operator.window, []
    rows = [row for row in rows if not is_dropped(operator, row)]
    for key in {row["text"] for row in rows}:
        own = [row for row in rows if row["text"] == key]
        for extra, start, end, members in windows_by_hand(window, own):
            numbers = [row["i"] for row in members if row["i"] is not None]
            decimals = [row["d"] for row in members if row["d"] is not None]
            times = dict(zip(("window_start", "window_end"), instants(start, end), strict=True))
            results.append(
                {"text": key, **extra, **times, "n": len(members), "sum_i": sum(numbers) if numbers else None}
                | {"min_d": str(min(decimals)) if decimals else None}
            )
    return sorted((dict(sorted(each.items())) for each in results), key=repr)


def is_dropped(operator, row):
    due = row["_event_time"] + 1
    if hasattr(operator.window, "pane_us"):
        while due % operator.window.pane_us:
            due += 1
    return row["_watermark"] is not None and row["_watermark"] >= due + operator.correct_for_us


def windows_by_hand(window, rows):
    times = {row["_event_time"] for row in rows}
    if isinstance(window, Session):
        for first in times:
            if any(first - window.gap_us <= time < first for time in times):
                continue
            last = first
            while any(last < time <= last + window.gap_us for time in times):
                last = min(time for time in times if last < time)
            yield (
                {},
                first,
                last + window.gap_us,
                [row for row in rows if first <= row["_event_time"] <= last],
            )
    elif not hasattr(window, "step_us"):
        for row in rows:
            start, end = row["_event_time"] - window.size_us, row["_event_time"]
            members = [each for each in rows if start < each["_event_time"] <= end]
            yield {"_partition": row["_partition"], "_offset": row["_offset"]}, start, end, members
    else:
        for start in range(-window.size_us * window.step_us, 121):
            members = [row for row in rows if start <= row["_event_time"] < start + window.size_us]
            if start % window.step_us == 0 and members:
                yield {}, start, start + window.size_us, members


def instants(*times):
    return pa.array(times, pa.int64()).view(pa.timestamp("us", "UTC")).to_pylist()
