"""Whole rows: their hash, which of them are equal, and their weights summed.

Values are compared by their bytes: -0.0 and 0.0 are different values, as nothing else tells
which of the two is to be withdrawn (keys are in normal form before, where they are the same).
Columns may be of any type, nested ones as well.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.column_hash import Hashes, hash_columns
from headrace.streams.operators.grouping import Ints, one_chunk, runs_of
from headrace.streams.operators.hashing import same
from headrace.streams.operators.runs import expanded

__all__ = ["equal_rows", "hash_values", "mixed", "ordered", "summed"]

Flags = npt.NDArray[np.bool_]
_NULL = hash_columns([pa.nulls(1, pa.int8())], 1)[0]


def mixed(*hashes: Hashes) -> Hashes:
    """One hash of several, row by row."""
    return hash_columns([pa.array(each) for each in hashes], len(hashes[0]))


def hash_values(columns: Sequence[pa.Array], rows: int) -> Hashes:
    """The hash of each row, all of whose columns these are."""
    return mixed(*(_hash_any(column) for column in columns)) if columns else np.zeros(rows, np.uint64)


def equal_rows(columns: Sequence[pa.Array], left: Ints, right: Ints) -> Flags:
    """Whether the rows `left` of a table are equal to its rows `right`, one by one."""
    equal = np.ones(len(left), np.bool_)
    for column in columns:
        equal &= _same_any(column, left, right)
    return equal


def ordered(first: Hashes, *others: Hashes | Ints) -> Ints:
    """The rows' order by the first column, and by the others among rows that share it."""
    order = np.argsort(first)
    hashes = first[order]
    again = hashes[1:] == hashes[:-1]
    if not others or not again.any():
        return order
    shared = np.zeros(len(order), np.bool_)
    shared[1:] |= again
    shared[:-1] |= again
    places = np.flatnonzero(shared)
    order[places] = _ordered_within(hashes[places], order[places], others)
    return order


def _ordered_within(hashes: Hashes, rows: Ints, others: Sequence[Hashes | Ints]) -> Ints:
    """Rows that ascend by hash, ordered by the other columns as well.

    Which hash and as much of the next column as fits are put into one number: numpy sorts
    numbers several times faster than it sorts by columns in turn.
    """
    groups = np.zeros(len(rows), np.uint64)
    np.cumsum(hashes[1:] != hashes[:-1], out=groups[1:])
    values = others[0][rows]
    values = values.view(np.uint64) - values.min().astype(values.dtype).view(np.uint64)
    bits = max(1, int(groups[-1]).bit_length())
    cut = max(0, bits + int(values.max()).bit_length() - 64)
    numbers = (groups << np.uint64(64 - bits)) | (values >> np.uint64(cut))
    order = np.argsort(numbers)
    rows, numbers = rows[order], numbers[order]
    tied = np.flatnonzero(numbers[1:] == numbers[:-1])
    compared = others if cut else others[1:]
    if len(tied) and any((each[rows[tied]] != each[rows[tied + 1]]).any() for each in compared):
        places = np.union1d(tied, tied + 1)
        columns = (*(each[rows[places]] for each in others[::-1]), numbers[places])
        rows[places] = rows[places][np.lexsort(columns)]
    return rows


def summed(
    hashes: Sequence[Hashes], columns: Sequence[pa.Array], weights: Ints
) -> tuple[Ints, Ints, Flags | None]:
    """One row of every set of equal ones, by the order of the hashes, and its weight; none of weight zero.

    Rows that share hashes and are not equal are put in the order of their values, so that
    what comes out does not depend on the order that rows came in.
    """
    order = ordered(*hashes)
    starts = runs_of(*(each[order] for each in hashes)) if len(order) else np.zeros(0, np.int64)
    if len(starts) < len(order):
        starts, order = _separated(columns, order, starts)
        sums = np.add.reduceat(weights[order], starts)
        order = order[starts]
    else:
        sums = weights[order]
    there = sums != 0
    if there.all():
        return order, sums, None
    return order[there], sums[there], there


def _separated(columns: Sequence[pa.Array], order: Ints, starts: Ints) -> tuple[Ints, Ints]:
    """Where rows of one hash are not all equal, sorts them by value, slowly: hashes hardly ever collide."""
    sizes = np.diff(starts, append=len(order))
    groups = np.repeat(np.arange(len(starts)), sizes)
    others = np.ones(len(order), np.bool_)
    others[starts] = False
    places = np.flatnonzero(others)
    equal = equal_rows(columns, order[places], order[starts[groups[places]]])
    if equal.all():
        return starts, order
    order, begins = order.copy(), [starts]
    for group in np.unique(groups[places[~equal]]).tolist():
        begin, end = int(starts[group]), int(starts[group] + sizes[group])
        by_value: dict[str, list[int]] = {}
        for row in order[begin:end].tolist():
            by_value.setdefault(repr([column[row].as_py() for column in columns]), []).append(row)
        alike = [by_value[value] for value in sorted(by_value)]
        order[begin:end] = [row for rows in alike for row in rows]
        begins.append(begin + np.cumsum([len(rows) for rows in alike])[:-1])
    return np.sort(np.concatenate(begins)), order


def _hash_any(column: pa.Array) -> Hashes:
    column = _plain(column)
    kind = column.type
    if pa.types.is_struct(kind):
        hashes = hash_values(column.flatten(), len(column)) + np.uint64(kind.num_fields)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        hashes = _hash_lists(column)
    elif pa.types.is_null(kind):
        return hash_columns([pa.nulls(len(column), pa.int8())], len(column))
    else:
        return hash_columns([column], len(column))
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _hash_lists(column: pa.Array) -> Hashes:
    begins, ends = _bounds(column)
    rows, places = expanded(begins, ends)
    elements = _hash_any(column.values)[rows]
    at = (np.arange(len(rows)) - np.repeat(places, ends - begins)).astype(np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed(elements, at))])
    return mixed(sums[places + (ends - begins)] - sums[places], (ends - begins).astype(np.uint64))


def _same_any(column: pa.Array, left: Ints, right: Ints) -> Flags:
    column = _plain(column)
    kind = column.type
    if pa.types.is_null(kind):
        return np.ones(len(left), np.bool_)
    if not (pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return same(column.take(pa.array(left)), column.take(pa.array(right)))
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    equal: Flags = np.equal(is_null[left], is_null[right])
    if pa.types.is_struct(kind):
        return equal & equal_rows(column.flatten(), left, right)
    begins, ends = _bounds(column)
    sizes = ends - begins
    equal &= sizes[left] == sizes[right]
    alike = np.flatnonzero(equal)
    ours, places = expanded(begins[left[alike]], ends[left[alike]])
    theirs, _ = expanded(begins[right[alike]], ends[right[alike]])
    differ = np.concatenate([[0], np.cumsum(~_same_any(column.values, ours, theirs))])
    equal[alike] = differ[places] == differ[places + sizes[left[alike]]]
    return np.asarray(equal)


def _bounds(column: pa.Array) -> tuple[Ints, Ints]:
    """Where each list begins and ends among the values; a null is as long as an empty one."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    begins, ends = offsets[:-1], offsets[1:]
    if column.null_count:
        ends = np.where(column.is_null().to_numpy(zero_copy_only=False), begins, ends)
    return begins, ends


def _plain(column: pa.Array) -> pa.Array:
    """The same values in one of the layouts that are hashed and compared here."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        return _plain(column.storage)
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode())
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_map(kind):
        entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        return column.cast(pa.list_(entry))
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return column.cast(pa.large_list(kind.value_type))
    if pa.types.is_interval(kind):
        return column.view(pa.binary(kind.bit_width // 8))
    return column


def columns_of(table: pa.Table, names: Sequence[str]) -> list[pa.Array]:
    """Some of a table's columns, each in one chunk."""
    return [one_chunk(table[name]) for name in names]


def any_null(columns: Sequence[pa.Array], rows: int) -> Flags | None:
    """Which rows have a null in one of the columns; nothing where none has."""
    flags = None
    for column in columns:
        if column.null_count:
            nulls = np.asarray(pc.is_null(column).to_numpy(zero_copy_only=False))
            flags = nulls if flags is None else flags | nulls
    return flags if rows else None
