"""Keys of any type, their hashes and buckets."""

import math
from collections import Counter
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.streams.operators.rows import closed, table_of

from headrace.errors import RequestError
from headrace.streams.operators import WindowOperator, agg, buckets, tumbling

COUNT = (("n", agg.count()),)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", None, "", "a longer text than sixteen bytes", "ü"], pa.string()),
        ([b"a", None, b"", b"\x00"], pa.binary()),
        (["a", None, "b"], pa.large_string()),
        (["a", None, "b"], pa.string_view()),
        (["a", None, "b"], pa.dictionary(pa.int32(), pa.string())),
        ([0, None, -1, 2**62], pa.int64()),
        ([0, None, 255], pa.uint8()),
        ([2**64 - 1, None], pa.uint64()),
        ([True, None, False], pa.bool_()),
        ([0.5, None, math.inf], pa.float32()),
        ([date(2026, 1, 1), None], pa.date32()),
        ([0, None, -5], pa.timestamp("ms", "UTC")),
        ([7, None], pa.duration("s")),
        ([7, None], pa.time32("s")),
        ([Decimal("1.10"), None, Decimal("-1.10")], pa.decimal128(20, 2)),
        ([b"abc", None, b"xyz"], pa.binary(3)),
    ],
)
def test_a_key_of_any_type_and_null_is_counted_for_itself(values, kind):
    operator = WindowOperator(tumbling("1 minute"), ("key",), COUNT)
    column = pa.array(values * 3, kind)
    rows = table_of(list(range(len(column))), key=column)
    found = closed(operator, rows.slice(0, 4), rows.slice(4))
    expected = pa.array(values, kind).cast(operator.result_schema(rows.schema).field("key").type).to_pylist()
    assert sorted(map(repr, (each["key"] for each in found))) == sorted(map(repr, expected))
    assert all(each["after"]["n"] == 3 for each in found)


def test_every_nan_is_one_key_and_so_are_both_zeros():
    nans = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    operator = WindowOperator(tumbling("1 minute"), ("key",), COUNT)
    rows = table_of([0, 1, 2, 3], key=pa.array([nans[0], nans[1], 0.0, -0.0], from_pandas=False))
    assert sorted(each["after"]["n"] for each in closed(operator, rows.slice(0, 1), rows.slice(1))) == [2, 2]


def test_a_nested_key_is_refused():
    operator = WindowOperator(tumbling("1 minute"), ("key",), COUNT)
    with pytest.raises(RequestError, match="'key' of type list<"):
        operator.partial(table_of([0], key=[[1]]))


def colliding_pairs():
    """Two different pairs of integers with the same hash, from the inverse of the hash's mixing."""
    word, odd, step = 1 << 64, 0xD6E8FEB86659FD93, 0x9E3779B97F4A7C15
    inverse = pow(odd, -1, word)

    def mix(value):
        value = (value ^ value >> 32) * odd % word
        value = (value ^ value >> 32) * odd % word
        return value ^ value >> 32

    def unmixed(value):
        value = (value ^ value >> 32) * inverse % word
        value = (value ^ value >> 32) * inverse % word
        return value ^ value >> 32

    b = unmixed((mix(1) * step + mix(2) - mix(3) * step) % word)
    return (1, 2), (3, b - word if b >= word // 2 else b)


@pytest.mark.parametrize("emit", ["close", "update"])
def test_keys_that_share_a_hash_are_told_apart(emit):
    first, second = colliding_pairs()
    operator = WindowOperator(tumbling("1 minute"), ("a", "b"), (("total", agg.sum("x")),), emit=emit)
    pairs = [first, second, first, second, (5, 6), first]
    rows = table_of(
        list(range(6)),
        a=pa.array([a for a, _ in pairs]),
        b=pa.array([b for _, b in pairs]),
        x=pa.array([1, 10, 100, 1000, 7, 10000]),
    )
    hashes = operator.partial(rows)["_hash"].to_pylist()
    assert len(set(hashes)) == len(hashes) - 1, "the test's keys no longer collide"
    state, results = operator.new_state(), {}
    for begin in range(0, 6, 2):
        for tables, watermark in (([operator.partial(rows.slice(begin, 2))], None), ([], None)):
            step = state.advance(tables, watermark)
            for each in [] if step.changes is None else step.changes.to_pylist():
                assert results.get((each["a"], each["b"])) == each["before"]
                results[each["a"], each["b"]] = each["after"]
    final = state.advance([], 1 << 50).changes
    for each in [] if final is None else final.to_pylist():
        results[each["a"], each["b"]] = each["after"]
    assert results == {first: {"total": 10101}, second: {"total": 1010}, (5, 6): {"total": 7}}


def test_buckets_are_the_same_in_every_release():
    """State is stored by bucket: these numbers may never change."""
    table = pa.table(
        {
            "text": ["", "a", "user-1", "a longer text than sixteen bytes", None],
            "number": pa.array([0, 1, -1, 2**40, None], pa.int64()),
            "double": pa.array([0.0, 1.5, math.nan, -math.inf, None], from_pandas=False),
        }
    )
    assert buckets(table, ("text",), 1000).tolist() == PINNED["text"]
    assert buckets(table, ("number",), 1000).tolist() == PINNED["number"]
    assert buckets(table, ("double",), 1000).tolist() == PINNED["double"]
    assert buckets(table, ("text", "number"), 1000).tolist() == PINNED["both"]


PINNED = {
    "text": [0, 217, 245, 847, 626],
    "number": [0, 255, 267, 316, 626],
    "double": [0, 92, 497, 233, 626],
    "both": [0, 194, 274, 869, 434],
}


def test_buckets_do_not_depend_on_width_slice_or_layout():
    numbers = pa.array([5, -7, 100])
    wide, narrow = pa.table({"k": numbers}), pa.table({"k": numbers.cast(pa.int8())})
    assert buckets(wide, ("k",), 64).tolist() == buckets(narrow, ("k",), 64).tolist()
    texts = pa.table({"k": [f"user-{number}" for number in range(100)]})
    sliced = buckets(texts.slice(37, 20), ("k",), 64)
    assert sliced.tolist() == buckets(texts, ("k",), 64)[37:57].tolist()
    views = texts.cast(pa.schema([("k", pa.string_view())]))
    assert buckets(views, ("k",), 64).tolist() == buckets(texts, ("k",), 64).tolist()


@pytest.mark.parametrize(
    "keys", [range(20_000), [f"user-{n}" for n in range(20_000)], [n / 7 for n in range(20_000)]]
)
def test_buckets_are_spread_evenly(keys):
    sizes = Counter(buckets(pa.table({"k": pa.array(keys)}), ("k",), 16).tolist())
    assert len(sizes) == 16
    assert max(sizes.values()) < 1.15 * 20_000 / 16
