"""Runs of rows by hash, and the index that finds them."""

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from headrace.streams.operators import Upserts
from headrace.streams.operators.hash_index import HashIndex
from headrace.streams.operators.keys import HASH
from headrace.streams.operators.operator import DELETED, stamp_fields
from headrace.streams.operators.runs import Runs

HASHES = 1 << 64


def test_hashes_are_found_where_bisection_finds_them():
    chance = np.random.default_rng(1)
    for count in (0, 1, 2, 1000, 200_000, 300_001):
        held = np.sort(chance.integers(0, HASHES - 1, count, np.uint64, endpoint=True))
        some = held[chance.integers(0, count, 500)] if count else held
        compare(held, np.concatenate([some, chance.integers(0, HASHES - 1, 500, np.uint64), LIMITS]))


def test_hashes_that_are_there_often_or_stand_together_are_found_in_few_steps():
    chance = np.random.default_rng(2)
    spread = chance.integers(0, HASHES - 1, 150_000, np.uint64)
    often = np.repeat(spread[:3], 20_000)
    near = np.arange(1000, 60_000, dtype=np.uint64)
    held = np.sort(np.concatenate([spread, often, near, np.repeat(LIMITS, 10)]))
    compare(held, np.concatenate([held[::97], held[::89] + np.uint64(1), LIMITS]))


LIMITS = np.array([0, 1, HASHES - 2, HASHES - 1], np.uint64)


def compare(held, wanted):
    wanted = np.unique(wanted)
    there, begins, ends = HashIndex(held).places_of(wanted)
    low, high = (np.searchsorted(held, wanted, side) for side in ("left", "right"))
    assert there.tolist() == np.flatnonzero(low < high).tolist()
    assert begins.tolist() == low[there].tolist()
    assert ends.tolist() == high[there].tolist()


def summed(table):
    """One row for each hash."""
    hashes, weights = (np.asarray(table[name]) for name in (HASH, "weight"))
    found, places = np.unique(hashes, return_inverse=True)
    sums = np.zeros(len(found), np.int64)
    np.add.at(sums, places, weights)
    return pa.table({HASH: found, "weight": sums})


@pytest.fixture(params=[1 << 15, 0], ids=["merged", "put together"])
def few_rows(request, monkeypatch):
    """How many rows are merged at once where others would only be put one behind the other."""
    monkeypatch.setattr("headrace.streams.operators.runs._FEW_ROWS", request.param)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("one_each", [False, True])
@pytest.mark.parametrize("keys", [3, 500, 100_000])
def test_what_was_added_is_found_however_runs_were_merged(one_each, keys):
    chance = np.random.default_rng(keys)
    names = np.unique(chance.integers(0, HASHES - 1, keys, np.uint64))
    runs, total = Runs(summed, one_each=one_each), dict.fromkeys(names.tolist(), 0)
    for batch in range(300):
        hashes = np.unique(names[chance.integers(0, len(names), 20)])
        weights = chance.integers(1, 9, len(hashes))
        runs.add(pa.table({HASH: hashes, "weight": weights}))
        for name, weight in zip(hashes.tolist(), weights.tolist(), strict=True):
            total[name] += weight
        asked = np.unique(names[chance.integers(0, len(names), 20)])
        held = runs.find(asked)
        found = {} if held is None else dict(zip(*(each.to_pylist() for each in summed(held)), strict=True))
        assert found == {name: total[name] for name in asked.tolist() if total[name]}, batch
        pairs = {}
        for table, places, rows in runs.matches(asked):
            for place, row in zip(places.tolist(), rows.tolist(), strict=True):
                assert table[HASH][row].as_py() == asked[place]
                pairs[int(asked[place])] = pairs.get(int(asked[place]), 0) + table["weight"][row].as_py()
        assert pairs == found, batch
    merged = runs.merged()
    assert dict(zip(*(each.to_pylist() for each in merged), strict=True)) == {
        name: weight for name, weight in total.items() if weight
    }


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize("keys", [5, 60, 2_000])
def test_a_table_of_upserts_is_what_came_last_however_its_runs_were_merged(keys):
    chance, operator = random.Random(keys), Upserts(("key",), keep_us=10**9)
    schema = pa.schema([("key", pa.int64()), ("value", pa.int64()), (DELETED, pa.bool_())])
    state, shown, told, offset = operator.new_state([schema]), {}, Counter(), 0
    for batch in range(200):
        rows = []
        for _ in range(10):
            row = {"key": chance.randrange(keys), "value": offset, DELETED: chance.random() < 0.2}
            stamps = {"_partition": 0, "_offset": offset, "_event_time": offset, "_weight": 1}
            rows.append(row | stamps)
            shown.pop(row["key"], None)
            if not row[DELETED]:
                shown[row["key"]] = offset
            offset += 1
        arrived = pa.Table.from_pylist(rows, pa.schema([*schema, *stamp_fields()]))
        step = state.advance([arrived], [offset])
        for row in [] if step.changes is None else step.changes.to_pylist():
            told[row["key"], row["value"]] += row["_weight"]
        assert {key: value for (key, value), there in told.items() if there} == shown, batch
        if batch % 70 == 69:
            stored, state = state.snapshot(), operator.new_state([schema])
            state.replay(stored)


def test_keys_that_come_all_the_time_do_not_pile_up():
    """Beside many that come once: what is looked at of a key stays near its share."""
    chance, looked = np.random.default_rng(3), 0
    often = np.unique(chance.integers(0, HASHES - 1, 5, np.uint64))
    runs = Runs(summed, one_each=True)
    for _ in range(2_000):
        once = chance.integers(0, HASHES - 1, 15, np.uint64)
        hashes = np.unique(np.concatenate([often, once]))
        held = runs.find(hashes)
        looked += 0 if held is None else held.num_rows
        runs.add(pa.table({HASH: hashes, "weight": np.ones(len(hashes), np.int64)}))
    assert looked < 2_000 * 20 * 4
