"""Tumbling windows on small tables."""

import pyarrow as pa

from headrace.streams.operators import WindowOperator, agg, pack_buckets, tumbling, unpack

MINUTE = 60_000_000


def rows(*events, watermark=None):
    """Events are (key, value, event time in seconds)."""
    return pa.table(
        {
            "key": pa.array([key for key, _, _ in events], pa.string()),
            "value": pa.array([value for _, value, _ in events], pa.float64()),
            "_partition": pa.array([0] * len(events), pa.int32()),
            "_offset": pa.array(range(len(events)), pa.int64()),
            "_event_time": pa.array([at * 1_000_000 for _, _, at in events], pa.int64()),
            "_watermark": pa.array([watermark] * len(events), pa.int64()),
        }
    )


def operator(**options):
    aggregates = (("events", agg.count()), ("total", agg.sum("value")), ("highest", agg.max("value")))
    return WindowOperator(tumbling("1 minute"), ("key",), aggregates, **options)


def results(changes):
    """(key, minute, kind, before, after) of each change, in order of minute and key."""
    listed = [
        (
            each["key"],
            int(each["window_start"].timestamp()) // 60,
            each["kind"],
            each["before"],
            each["after"],
        )
        for each in changes.to_pylist()
    ]
    return sorted(listed, key=lambda each: (each[1], each[0] or ""))


def test_a_window_is_published_when_the_watermark_reaches_its_end():
    state = operator().new_state()
    partial = operator().partial(rows(("a", 1.0, 5), ("b", 2.0, 7), ("a", 0.5, 59), ("a", 9.0, 60)))
    assert state.advance([partial], MINUTE - 1).changes is None
    first = state.advance([], MINUTE).changes
    assert results(first) == [
        ("a", 0, 0, None, {"events": 2, "total": 1.5, "highest": 1.0}),
        ("b", 0, 0, None, {"events": 1, "total": 2.0, "highest": 2.0}),
    ]
    assert state.row_count == 1
    assert results(state.advance([], 2 * MINUTE).changes) == [
        ("a", 1, 0, None, {"events": 1, "total": 9.0, "highest": 9.0})
    ]


def test_partials_of_several_batches_and_partitions_are_one_result():
    state, one = operator().new_state(), operator()
    state.advance([one.partial(rows(("a", 0.1, 1))), one.partial(rows(("a", 0.2, 2)))], 0)
    last = state.advance([one.partial(rows(("a", 0.3, 3)))], MINUTE)
    assert results(last.changes) == [("a", 0, 0, None, {"events": 3, "total": 0.6, "highest": 0.3})]


def test_a_late_row_is_dropped_before_it_reaches_the_state():
    late = rows(("a", 1.0, 5), ("a", 1.0, 65), watermark=MINUTE)
    assert operator().classify(late).tolist() == [2, 0]
    assert operator(correct_for_us=1).classify(late).tolist() == [1, 0]
    assert operator().partial(late).num_rows == 1


def test_a_snapshot_and_the_deltas_after_it_are_the_state():
    live, one = operator().new_state(), operator()
    live.advance([one.partial(rows(("a", 1.0, 5)))], 0)
    snapshot = live.snapshot()
    delta = live.advance([one.partial(rows(("a", 2.0, 6), ("b", 3.0, 6)))], 10).delta
    loaded = one.load(snapshot, [delta])
    assert loaded.watermark_us == live.watermark_us == 10
    assert loaded.advance([], MINUTE).changes.equals(live.advance([], MINUTE).changes)


def test_buckets_together_hold_every_row_once():
    partial = operator().partial(rows(*((f"user-{each}", 1.0, each) for each in range(500))))
    packed = pack_buckets(partial, ("key",), 8)
    assert sorted(bucket for bucket, _ in packed) == list(range(8))
    assert sum(unpack(blob).num_rows for _, blob in packed) == partial.num_rows


def test_a_delta_holds_what_is_left_of_a_step_and_not_what_it_closed():
    one = operator()
    tables = [one.partial(rows(("a", 1.0, 5), ("a", 2.0, 65))), one.partial(rows(("b", 3.0, 6)))]
    step = one.new_state().advance(tables, MINUTE)
    assert len(results(step.changes)) == 2
    loaded = one.load(None, [step.delta])
    assert loaded.row_count == 1
    assert results(loaded.advance([], 2 * MINUTE).changes) == [
        ("a", 1, 0, None, {"events": 1, "total": 2.0, "highest": 2.0})
    ]
