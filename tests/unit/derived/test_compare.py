"""Rows are compared by checksums of ranges first, then one by one."""

import random

from headrace.derived.compare import RANGES, compare_rows, range_of, range_sums

ROWS = [(b"key-%d" % each, {"id": each, "name": f"n{each}"}) for each in range(3_000)]


def differing(left, right):
    here, there = range_sums(left)[0], range_sums(right)[0]
    return {each for each in range(RANGES) if here[each] != there[each]}


def test_checksums_do_not_depend_on_the_order_of_rows():
    shuffled = random.Random(1).sample(ROWS, len(ROWS))
    assert range_sums(ROWS) == range_sums(shuffled) and range_sums(ROWS)[1] == 3_000


def test_only_the_ranges_of_rows_that_differ_have_other_checksums():
    changed = [
        (key, {**row, "name": "?"} if key == b"key-7" else row) for key, row in ROWS if key != b"key-8"
    ]
    assert differing(ROWS, changed) == {range_of(b"key-7"), range_of(b"key-8")}


def test_two_rows_that_swap_their_contents_are_noticed():
    swapped = [(b"a", {"n": 1}), (b"b", {"n": 2})], [(b"a", {"n": 2}), (b"b", {"n": 1})]
    assert differing(*swapped) == {range_of(b"a"), range_of(b"b")}


def test_every_kind_of_difference_has_its_name():
    must, has = {b"1": {"n": 1}, b"2": {"n": 2}, b"3": {}}, {b"1": {"n": 1.0}, b"2": {"n": 3}, b"4": {}}
    found = {each.identity: each.kind for each in compare_rows(must.items(), has.items())}
    assert found == {b"2": "different", b"3": "missing", b"4": "extra"}
