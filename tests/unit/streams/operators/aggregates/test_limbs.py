"""Exact sums in limbs against Python's integers."""

import random

import numpy as np

from headrace.streams.operators.aggregates import limbs
from headrace.streams.operators.grouping import Groups
from headrace.streams.operators.runs import expanded


def in_limbs(values, count):
    """Python's integers as normal limbs."""
    columns = []
    for number in range(count):
        shifted = [value >> limbs.BITS * number for value in values]
        columns.append(np.array([each & (1 << 48) - 1 if number < count - 1 else each for each in shifted]))
    return columns


def test_limbs_are_the_integers_they_came_from():
    values = [0, 1, -1, 2**150, -(2**150), 2**96 - 1, -(2**48)]
    assert limbs.as_python(in_limbs(values, 4)) == values
    assert limbs.as_python(limbs.normal(in_limbs(values, 4))) == values


def test_the_nearest_double_ties_to_even():
    chance = random.Random(5)
    values = [0, 1, -1, 2**53 + 1, 2**53 + 3, -(2**53) - 1, (2**53 + 1) << 60, ((2**53 + 1) << 60) + 1]
    values += [chance.randrange(-(1 << bits), 1 << bits) for bits in range(1, 200) for _ in range(20)]
    values += [(chance.getrandbits(53) << 1 | 1) << shift for shift in range(140) for _ in range(5)]
    found = limbs.as_float(in_limbs(values, 4), 0).tolist()
    assert found == [float(value) for value in values]


def test_many_rows_of_one_group_do_not_wrap():
    rows = 3 * limbs.SAFE_ROWS
    value = (1 << 140) - 1
    groups = Groups(np.zeros(rows, np.int64), 1, np.zeros(1, np.int64))
    columns = [np.repeat(each, rows) for each in in_limbs([value], 3)]
    assert limbs.as_python(limbs.add(columns, groups)) == [value * rows]
    columns = [np.repeat(each, rows) for each in in_limbs([-value], 3)]
    assert limbs.as_python(limbs.add(columns, groups)) == [-value * rows]


def test_ranges_are_written_out():
    rows, places = expanded(np.array([3, 0, 5]), np.array([5, 3, 6]))
    assert rows.tolist() == [3, 4, 0, 1, 2, 5]
    assert places.tolist() == [0, 2, 5]
