"""Random streams of events, and a run of an operator over them, for the property tests."""

import struct
from dataclasses import dataclass, field
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from headrace.streams.operators import (
    Hopping,
    Session,
    Sliding,
    Tumbling,
    WindowOperator,
    agg,
)

END = 1 << 50  # a watermark behind everything

WINDOWS = st.one_of(
    st.builds(Tumbling, st.integers(1, 40)),
    st.tuples(st.integers(1, 40), st.integers(1, 12)).map(lambda each: Hopping(max(each), min(each))),
    st.builds(Sliding, st.integers(1, 30)),
    st.builds(Session, st.integers(1, 20)),
)
TEXTS = st.sampled_from(["a", "b", "", "a key of more than sixteen bytes", "ä", None])
NUMBERS = st.sampled_from(
    [
        0.0,
        -0.0,
        0.1,
        -0.1,
        1e-9,
        1e16,
        -1e16,
        1e300,
        -1e300,
        5e-324,
        *map(float, ("inf", "-inf", "nan")),
        None,
    ]
)
TAME = st.sampled_from([0.1, 0.2, 0.3, -0.1, 1e-9, 1e16, 1 / 3, 123456.789, 2.5, None])
EVENTS = st.tuples(
    TEXTS,
    st.sampled_from([0.0, -0.0, float("nan"), 1.5, None]),
    st.one_of(TAME, NUMBERS),
    st.one_of(st.none(), st.integers(-(2**40), 2**40)),
    st.one_of(st.none(), st.decimals(-1000, 1000, places=2, allow_nan=False)),
    st.integers(0, 2),  # partition
    st.integers(0, 120),  # event time
)
KEYS = st.sampled_from([("text",), ("number",), ("text", "number"), ()])
SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("number", pa.float64()),
        ("x", pa.float64()),
        ("i", pa.int64()),
        ("d", pa.decimal128(9, 2)),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_event_time", pa.int64()),
        ("_watermark", pa.int64()),
    ]
)


class Spread:
    """A user's own aggregate, with two columns of state: how far the values of a column are apart."""

    def __init__(self, column):
        self.columns = (column,)

    def state_types(self, inputs):
        return [inputs[0], inputs[0]]

    def result_type(self, inputs):
        return inputs[0]

    def partial(self, inputs, groups):
        return [groups.aggregate(inputs[0], function) for function in ("min", "max")]

    def merge(self, states, groups):
        return [
            groups.aggregate(state, function) for state, function in zip(states, ("min", "max"), strict=True)
        ]

    def finish(self, states):
        return pc.subtract(states[1], states[0])


AGGREGATES = {
    "n": agg.count(),
    "n_x": agg.count("x"),
    "sum_x": agg.sum("x"),
    "mean_x": agg.mean("x"),
    "sum_i": agg.sum("i"),
    "mean_i": agg.mean("i"),
    "sum_d": agg.sum("d"),
    "mean_d": agg.mean("d"),
    "min_x": agg.min("x"),
    "max_x": agg.max("x"),
    "min_d": agg.min("d"),
    "max_text": agg.max("text"),
    "first_x": agg.first("x"),
    "last_text": agg.last("text", ignore_nulls=True),
    "variance_x": agg.variance("x"),
    "stddev_i": agg.stddev("i"),
    "all_i": agg.collect("i", 3),
    "spread_i": agg.custom(Spread("i")),
}


def rows_of(events, lateness):
    """Rows in order of arrival, stamped as the source would: each partition has its own watermark."""
    seen, offsets, stamped = {}, {}, []
    for *values, partition, time in events:
        offset = offsets.get(partition, 0)
        watermark = seen[partition] - lateness if partition in seen else None
        stamped.append([*values, partition, offset, time, watermark])
        offsets[partition] = offset + 1
        seen[partition] = max(seen.get(partition, time), time)
    columns = list(zip(*stamped, strict=True)) if stamped else [[] for _ in SCHEMA]
    return pa.table(
        [pa.array(list(each), kind.type) for each, kind in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def watermark_after(events, end, lateness):
    """The operator's watermark when the first `end` events have come: the least of all partitions."""
    times = {partition: [] for *_, partition, _ in events}
    for *_, partition, time in events[:end]:
        times[partition].append(time)
    return min(max(each) - lateness for each in times.values()) if all(times.values()) and times else None


def exact(value):
    """The value such that equal means equal to the last bit."""
    if isinstance(value, float):
        return "NaN" if value != value else struct.pack(">d", value).hex()
    if isinstance(value, list):
        return [exact(each) for each in value]
    if isinstance(value, dict):
        return {name: exact(each) for name, each in value.items()}
    return str(value) if isinstance(value, Decimal) else value


def listed(table):
    return [] if table is None else [exact(each) for each in table.to_pylist()]


@dataclass
class View:
    """What a store makes of changes.

    Fails when a change does not begin where the last one ended, or one batch tells of a result twice.
    """

    results: dict = field(default_factory=dict)
    kinds: list = field(default_factory=list)

    def apply(self, changes):
        seen = set()
        for change in listed(changes):
            before, after, kind = change.pop("before"), change.pop("after"), change.pop("kind")
            place = tuple(sorted(change.items()))
            assert place not in seen, place
            seen.add(place)
            assert self.results.get(place) == before, (place, self.results.get(place), before)
            assert (kind == 3) == (after is None)
            self.kinds.append(kind)
            if after is None:
                del self.results[place]
            else:
                self.results[place] = after

    def rows(self):
        return sorted((dict(place) | after for place, after in self.results.items()), key=repr)


def as_rows(results):
    """The results of `recompute` in the form of `View.rows`."""
    return sorted((dict(sorted(each.items())) for each in listed(results)), key=repr)


def view_rows(view):
    return sorted((dict(sorted(each.items())) for each in view.rows()), key=repr)


def aggregates(names):
    return tuple((name, AGGREGATES[name]) for name in names)


def operator_of(window, keys, names, **options):
    # A grouping key cannot be aggregated under its own name, but it can be read.
    return WindowOperator(window, keys, aggregates(names), **options)
