"""Exact sums: integers of many bits, column by column.

A sum is a list of int64 columns ("limbs"), lowest first, each but the highest holding
48 bits of a two's complement integer: value = l0 + l1 * 2**48 + l2 * 2**96 + ... The
highest is signed. Sums of sums are therefore exact, and so do not depend on the order
in which rows come nor on how they were batched. The unit of the integer is the
owner's: 1 for integers, 10**-scale for decimals, 2**-112 for doubles.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headrace.streams.operators.grouping import Floats, Groups, Ints

__all__ = ["BITS", "SAFE_ROWS", "add", "as_float", "as_int64", "as_python", "from_int64", "normal"]

BITS = 48
_MASK = (1 << BITS) - 1
SAFE_ROWS = 1 << 14  # of normal limbs, whose sum cannot leave an int64


def from_int64(values: Ints, limbs: int) -> list[Ints]:
    """The values as normal limbs."""
    return normal([values, *(np.zeros(len(values), np.int64) for _ in range(limbs - 1))])


def normal(limbs: Sequence[Ints]) -> list[Ints]:
    """The same values with every limb but the highest in [0, 2**48)."""
    carried: Ints | int = 0
    result = []
    for limb in limbs[:-1]:
        limb = limb + carried
        result.append(limb & _MASK)
        carried = limb >> BITS
    return [*result, limbs[-1] + carried]


def add(limbs: Sequence[Ints], groups: Groups) -> list[Ints]:
    """The sum of each group's values, normal again. The limbs given are normal ones."""
    if groups.largest <= SAFE_ROWS:
        return normal([groups.sum(limb) for limb in limbs])
    # So many rows of one group that a limb could wrap: sum the halves of each apart.
    low = [groups.sum(limb & 0xFFFFFF) for limb in limbs]
    high = [groups.sum(limb >> 24) for limb in limbs]
    shifted = [np.zeros_like(low[0]), *((each >> 24) for each in high[:-1])]
    kept = [(each & 0xFFFFFF) << 24 for each in high[:-1]] + [high[-1] << 24]
    return normal([a + b + c for a, b, c in zip(low, kept, shifted, strict=True)])


def as_int64(limbs: Sequence[Ints]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The values of two normal limbs, and which of them fit an int64."""
    low, high = limbs
    fits = (high >= -(1 << 15)) & (high < 1 << 15)
    return (high << BITS) + low, fits


def as_float(limbs: Sequence[Ints], exponent: int) -> Floats:
    """The doubles nearest to value * 2**exponent, ties to even. Normal limbs.

    For values whose nearest double is a normal one or zero.
    """
    negative = limbs[-1] < 0
    parts = [np.where(negative, -limb, limb) for limb in limbs]
    parts = normal(parts)
    shift = np.full(len(negative), exponent + BITS * (len(parts) - 1), np.int64)
    for _ in range(len(parts) - 1):
        empty = parts[-1] == 0
        if not empty.any():
            break
        below = [np.zeros_like(parts[0]), *parts[:-1]]
        parts = [np.where(empty, lower, part) for lower, part in zip(below, parts, strict=True)]
        shift -= np.where(empty, BITS, 0)
    window, places = _leading_bits(parts)
    result = np.ldexp(window.astype(np.float64), (shift + places).astype(np.int32))
    return np.where(negative, -result, result)


def _leading_bits(parts: Sequence[Ints]) -> tuple[Ints, Ints]:
    """The leading 62 bits of values whose highest limb is positive, the last bit sticky.

    The second column is the power of two by which they stand off the highest limb.
    """
    top, places = parts[-1], np.zeros(len(parts[-1]), np.int64)
    rest = list(parts[:-1])[::-1]
    window, sticky = top.copy(), np.zeros(len(top), np.bool_)
    room = 62 - np.frexp(np.maximum(top, 1).astype(np.float64))[1].astype(np.int64)
    room = np.maximum(room, 0)
    for limb in rest:
        taken = np.minimum(room, BITS)
        window = (window << taken) | (limb >> (BITS - taken))
        sticky |= (limb & ((np.int64(1) << (BITS - taken)) - 1)) != 0
        places -= taken
        room -= taken
    return window | sticky, places


def as_python(limbs: Sequence[Ints]) -> list[int]:
    """The values as Python's integers, one at a time: for what is rare."""
    totals = [0] * len(limbs[0])
    for limb in reversed(limbs):
        totals = [(total << BITS) + int(part) for total, part in zip(totals, limb.tolist(), strict=True)]
    return totals
