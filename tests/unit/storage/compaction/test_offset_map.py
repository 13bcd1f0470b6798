import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.compaction.offset_map import SLOT_BYTES, OffsetMap

MANY = 1 << 20


def add(table, keys, first=0):
    return table.add(keys, np.arange(first, first + len(keys), dtype=np.int64))


@given(st.lists(st.lists(st.binary(max_size=3), max_size=60), max_size=6))
def test_it_gives_the_newest_offset_of_each_key_as_a_dictionary_does(rounds):
    table, expected, offset = OffsetMap(MANY, 400), {}, 0
    for keys in rounds:
        assert add(table, keys, offset) == len(keys)
        expected |= {key: offset + n for n, key in enumerate(keys)}
        offset += len(keys)
    assert table.count == len(expected)
    assert table.find(list(expected)).tolist() == list(expected.values())
    assert table.find([b"none", b"like it"]).tolist() == [-1, -1]


def test_many_keys_of_one_call_share_slots_without_loss():
    keys = [b"%d" % (n % 3000) for n in range(9000)]
    table = OffsetMap(MANY, 9000)
    add(table, keys)
    assert table.find(keys[:3000]).tolist() == list(range(6000, 9000))


@pytest.mark.parametrize("slots", [2, 3, 16, 1000])
def test_it_takes_no_more_keys_than_it_has_room_for_and_says_how_many(slots):
    table = OffsetMap(slots * SLOT_BYTES, 1_000_000)
    keys = [b"%d" % n for n in range(5000)]
    taken = add(table, keys)
    assert 1 <= taken <= table.capacity < slots
    assert table.find(keys[:taken]).tolist() == list(range(taken))
    assert (table.find(keys[taken:]) == -1).all()
    assert add(table, [b"one more"], 9000) == 0


def test_keys_that_are_known_take_no_room():
    table = OffsetMap(100 * SLOT_BYTES, 1_000_000)
    keys = [b"%d" % (n % 50) for n in range(10_000)]
    assert add(table, keys) == len(keys)
    assert table.count == 50


def test_its_size_follows_from_what_is_expected_if_that_is_less():
    assert OffsetMap(1 << 30, 10).capacity < 30
