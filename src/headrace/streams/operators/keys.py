"""Keys of rows: normal form, hash, and which rows have the same.

Tables of state are ordered by the hash of their key, so that runs merge cheaply and a
key is found by bisection. Equality is always decided by the keys themselves: where two
keys share a hash, `grouped` sets them apart.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace import kernels
from headrace.column_hash import Hashes, hash_columns
from headrace.streams.operators.grouping import Groups, Ints, one_chunk, runs_of
from headrace.streams.operators.hashing import normal_key, same

__all__ = ["HASH", "grouped", "key_columns", "of_keys"]

HASH = "_hash"


def key_columns(rows: pa.Table, keys: Sequence[str]) -> list[pa.Array]:
    """The key columns in normal form, each in one chunk."""
    return [normal_key(one_chunk(rows[name]), name) for name in keys]


def hashes_of(table: pa.Table) -> Hashes:
    return np.asarray(one_chunk(table[HASH]).to_numpy())


def grouped(table: pa.Table, keys: Sequence[str]) -> tuple[Ints, Groups]:
    """An order of the table's rows in which equal keys stand side by side, ascending by hash; their groups.

    Rows of one key keep the order they had.
    """
    hashes = hashes_of(table)
    order = np.argsort(hashes, kind="stable")
    starts = runs_of(hashes[order])
    if len(starts) < len(order):
        starts, order = _separated(table, keys, order, starts)
    return order, Groups.adjacent(starts, len(order))


def of_keys(table: pa.Table, others: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows of a table whose key, and not only its hash, is among those of the others."""
    both = pa.concat_tables([table.select([*keys, HASH]), others.select([*keys, HASH])]).combine_chunks()
    order, groups = grouped(both, keys)
    is_other = np.zeros(both.num_rows, np.int64)
    is_other[table.num_rows :] = 1
    wanted = groups.maximum(is_other[order], 0).astype(np.bool_)
    found = np.empty(both.num_rows, np.bool_)
    found[order] = wanted[groups.ids]
    return table.filter(pa.array(found[: table.num_rows]))


def _separated(table: pa.Table, keys: Sequence[str], order: Ints, starts: Ints) -> tuple[Ints, Ints]:
    """Checks that rows of one hash have one key; where they do not, sorts them by key, slowly."""
    groups = Groups.adjacent(starts, len(order))
    others = np.ones(len(order), np.bool_)
    others[starts] = False
    rows = np.flatnonzero(others)
    left, right = pa.array(order[rows]), pa.array(order[starts[groups.ids[rows]]])
    equal = np.ones(len(rows), np.bool_)
    for name in keys:
        column = one_chunk(table[name])
        equal &= same(column.take(left), column.take(right))
    if equal.all():
        return starts, order
    order = order.copy()
    begins = [starts]
    for group in np.unique(groups.ids[rows[~equal]]).tolist():
        begin = int(starts[group])
        end = begin + int(groups.sizes[group])
        by_key: dict[object, list[int]] = {}
        for row in order[begin:end].tolist():
            by_key.setdefault(tuple(_identity(table[name][row]) for name in keys), []).append(row)
        ordered = [by_key[key] for key in sorted(by_key, key=repr)]
        order[begin:end] = [row for same_key in ordered for row in same_key]
        begins.append(begin + np.cumsum([len(same_key) for same_key in ordered])[:-1])
    return np.sort(np.concatenate(begins)), order


def _identity(scalar: pa.Scalar) -> object:
    value = scalar.as_py()
    return "NaN" if value != value else value


def numbered(columns: Sequence[pa.Array], rows: int) -> tuple[Ints, list[pa.Array], Hashes]:
    """Numbers the distinct keys, ascending by hash: the number of each row, the keys, their hashes.

    Each distinct key is hashed once, however many rows have it.
    """
    if len(columns) == 1 and _is_text(columns[0].type) and not columns[0].null_count:
        ids, distinct, hashes = _distinct_texts(columns[0])
    else:
        ids, distinct = _distinct(columns, rows)
        hashes = hash_columns(distinct, len(distinct[0]) if distinct else min(rows, 1))
    order = np.argsort(hashes)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[ids], [column.take(pa.array(order)) for column in distinct], hashes[order]


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _distinct_texts(column: pa.Array) -> tuple[Ints, list[pa.Array], Hashes]:
    """What `_distinct` finds, and the hashes: most keys are one text, and a loop in C does that faster."""
    _, bounds, content = column.buffers()
    octets = np.frombuffer(content, np.uint8) if content else np.zeros(0, np.uint8)
    ids, firsts, hashes = kernels.number_texts(
        octets, np.frombuffer(bounds, np.int32, len(column) + 1, column.offset * 4)
    )
    return ids, [column.take(pa.array(firsts))], hashes


def dense(ids: Ints, bound: int) -> tuple[Ints, Ints]:
    """Numbers below `bound` as 0 to n - 1 in the same order; and which number each was."""
    if bound <= 4 * len(ids) + 1024:
        used = np.flatnonzero(np.bincount(ids, minlength=bound))
        if len(used) == bound:
            return ids, used
        places = np.empty(bound, np.int64)
        places[used] = np.arange(len(used))
        return places[ids], used
    encoded = pa.array(ids).dictionary_encode()
    used = encoded.dictionary.to_numpy()
    order = np.argsort(used)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[encoded.indices.to_numpy()], used[order]


def _distinct(columns: Sequence[pa.Array], rows: int) -> tuple[Ints, list[pa.Array]]:
    """The number of each row's key, and the distinct keys."""
    if not columns:
        return np.zeros(rows, np.int64), []
    encoded = [column.dictionary_encode(null_encoding="encode") for column in columns]
    ids = encoded[0].indices.to_numpy().astype(np.int64)
    if len(columns) == 1:
        return ids, [encoded[0].dictionary]
    bound = len(encoded[0].dictionary)
    for each in encoded[1:]:
        size = len(each.dictionary)
        ids, used = dense(ids * size + each.indices.to_numpy(), bound * size)
        bound = len(used)
    first = pa.array(Groups(ids, bound).representatives)
    return ids, [column.take(first) for column in columns]
