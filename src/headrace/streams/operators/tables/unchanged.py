"""Fields whose value a change does not tell, because it left them as they were.

Such a field is null in its row, and its bit is set in the row's column `_unchanged` (little-endian, a
bit for each of the row's own columns in their order, stamps and names with a leading `_` aside; the
column is null where no bit is set). Its value is that of the row before, of the same key and
partition. A row whose bit is still set has none before it that is known.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.streams.operators.grouping import one_chunk

__all__ = ["UNCHANGED", "filled"]

UNCHANGED = "_unchanged"

Bools = npt.NDArray[np.bool_]


def filled(table: pa.Table, starts: npt.NDArray[np.int64]) -> pa.Table:
    """The rows with the values that their changes left out, from the rows before them.

    Rows of one key and partition stand together, in the order of their offsets; `starts` has the
    first of each.
    """
    if UNCHANGED not in table.column_names or one_chunk(table[UNCHANGED]).null_count == table.num_rows:
        return table
    names = [name for name in table.column_names if not name.startswith("_")]
    masks = _bits(one_chunk(table[UNCHANGED]), len(names))
    is_start = np.zeros(table.num_rows, np.bool_)
    is_start[starts] = True
    left = np.zeros_like(masks)
    for number in np.flatnonzero(masks.any(axis=0)).tolist():
        mask, name = masks[:, number], names[number]
        known = np.where(~mask | is_start, np.arange(table.num_rows), 0)
        behind = np.maximum.accumulate(known)
        left[:, number] = mask[behind]
        column = one_chunk(table[name]).take(pa.array(behind))
        table = table.set_column(table.column_names.index(name), table.schema.field(name), column)
    at = table.column_names.index(UNCHANGED)
    return table.set_column(at, table.schema.field(UNCHANGED), _packed(left))


def _bits(column: pa.Array, count: int) -> Bools:
    masks = np.zeros((len(column), count), np.bool_)
    for row in np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist():
        octets = np.frombuffer(column[row].as_buffer(), np.uint8)
        masks[row] = np.unpackbits(octets, count=count, bitorder="little").astype(np.bool_)
    return masks


def _packed(masks: Bools) -> pa.Array:
    values: Sequence[bytes | None] = [
        np.packbits(row, bitorder="little").tobytes() if row.any() else None for row in masks
    ]
    return pa.array(values, pa.binary())
