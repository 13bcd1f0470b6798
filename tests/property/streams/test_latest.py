"""The last row of each key: the same whatever the batches, the interleaving, the buckets and the restarts."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples
from tests.property.streams.streams_of_events import EVENTS, as_rows, exact, listed, rows_of
from tests.property.streams.test_windows import CUTS, batches

from headrace.streams.operators import (
    LatestOperator,
    pack_buckets,
    part_of_snapshot,
    recompute_latest,
    unpack,
)

LATENESS = 15
COLUMNS = ("text", "number", "x", "i", "d")
STREAMS = st.lists(EVENTS, max_size=40)
KEYS = st.sampled_from([("text",), ("number",), ("text", "number"), ("number", "i")])
ZERO, NEGATIVE_ZERO = exact(0.0), exact(-0.0)  # one key
BY = st.sampled_from(["event_time", "arrival"])


def operator_of(keys, by):
    return LatestOperator(keys=keys, columns=COLUMNS, by=by, lateness_us=LATENESS)


def shown(operator, rows, order, cuts, count, *, is_loaded_anew=False):
    """What a view has in the end when rows arrive in this order, by way of packed buckets."""
    states, view = [operator.new_state() for _ in range(count)], {}
    arrived = rows.take(pa.array(order, pa.int64()))
    stored = [[] for _ in states]
    for number, (begin, end) in enumerate(batches(order, cuts)):
        partial = operator.partial(arrived.slice(begin, end - begin))
        packed = pack_buckets(partial, operator.keys, count)
        for bucket, state in enumerate(states):
            tables = [unpack(blob) for each, blob in packed if each == bucket]
            step = state.advance(tables, None)
            stored[bucket].append(step.delta)
            if number == 2:
                stored[bucket] = [part_of_snapshot(state.snapshot(), (), each, 5) for each in range(5)]
            if step.changes is not None:
                _take(view, operator, step.changes)
        if is_loaded_anew:
            states = [operator.new_state() for _ in range(count)]
            for state, blobs in zip(states, stored, strict=True):
                for blob in blobs:
                    state.replay(blob)
    return sorted(view.values(), key=repr)


def _take(view, operator, changes):
    told = set()
    for change in listed(changes):
        row = change["after"]
        key = tuple(ZERO if row[name] == NEGATIVE_ZERO else row[name] for name in operator.keys)
        assert key not in told, "a batch tells of a key twice"
        told.add(key)
        view[key] = dict(sorted(row.items()))


@settings(max_examples=examples(32))
@given(keys=KEYS, by=BY, events=STREAMS, cuts=st.tuples(CUTS, CUTS), count=st.integers(1, 5), data=st.data())
def test_the_last_of_each_key_does_not_depend_on_batches_or_on_how_partitions_come(
    keys, by, events, cuts, count, data
):
    operator, rows = operator_of(keys, by), rows_of(events, LATENESS)
    order = data.draw(st.permutations(range(len(events))))
    straight = shown(operator, rows, list(range(len(events))), cuts[0], 1)
    assert shown(operator, rows, order, cuts[1], count) == straight
    assert shown(operator, rows, order, cuts[1], count, is_loaded_anew=True) == straight
    assert as_rows(recompute_latest(operator, rows)) == straight
