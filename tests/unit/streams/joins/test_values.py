import numpy as np
import pyarrow as pa
import pytest

from headrace.streams.operators.joins.values import equal_rows, hash_values, ordered, summed


@pytest.mark.parametrize("spread", [1, 2, 1000])
@pytest.mark.parametrize("bits", [2, 40, 64])
def test_rows_are_ordered_by_every_column_in_turn(spread, bits):
    chance = np.random.default_rng(spread * bits)
    first = chance.integers(0, spread, 3000).astype(np.uint64)
    second = chance.integers(0, 1 << bits, 3000, np.uint64, endpoint=False) if bits < 64 else None
    if second is None:
        second = chance.integers(0, (1 << 64) - 1, 3000, np.uint64)
    second[::7] = second[0]
    second[1::7] = second[0] + np.uint64(1)
    third = chance.integers(-5, 5, 3000)
    order = ordered(first, second, third)
    expected = np.lexsort((third, second, first))
    for column in (first, second, third):
        assert (column[order] == column[expected]).all()
    times = second.view(np.int64)
    order, expected = ordered(first, times), np.lexsort((times, first))
    assert (times[order] == times[expected]).all()
    assert (first[order] == first[expected]).all()


def test_the_first_column_alone_orders_rows():
    assert ordered(np.array([3, 1, 2], np.uint64)).tolist() == [1, 2, 0]
    assert ordered(np.zeros(0, np.uint64), np.zeros(0, np.int64)).tolist() == []


def test_equal_rows_have_equal_hashes_and_others_do_not():
    kind = pa.list_(pa.struct([("a", pa.list_(pa.float64())), ("b", pa.string())]))
    cells = [[{"a": [0.0, None], "b": ""}], [{"a": [-0.0, None], "b": ""}], [{"a": [0.0], "b": ""}], [], None]
    cells += [[None], [{"a": None, "b": None}], [{"a": [], "b": None}]]
    column = pa.array([*cells, *cells], kind).slice(1)
    hashes = hash_values([column], len(column))
    assert len(set(hashes.tolist())) == len(cells)
    rows = np.arange(len(cells) - 1)
    assert (hashes[rows] == hashes[rows + len(cells)]).all()
    assert equal_rows([column], rows, rows + len(cells)).all()
    assert not equal_rows([column], rows, (rows + 1) % (len(cells) - 1)).any()


def test_weights_of_equal_rows_are_summed_and_nothing_is_left_of_zero():
    column = pa.array(["a", "b", "a", "b", "c"])
    order, weights, _ = summed([hash_values([column], 5)], [column], np.array([1, 1, 1, -1, 2]))
    assert sorted(zip(column.take(pa.array(order)).to_pylist(), weights.tolist(), strict=True)) == [
        ("a", 2),
        ("c", 2),
    ]
