"""An order of rows that depends on their values alone, as SQL's ORDER BY has it."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.operators.grouping import Ints

__all__ = ["ranks", "sorted_by"]


def ranks(column: pa.Array, *, exact: bool = False) -> Ints:
    """A number for each value, greater for greater values; -1 for nulls.

    NaN is greater than every number. Both zeros are equal, unless the order is to be `exact`.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        found = _float_ranks(column, exact=exact)
    else:
        encoded = column.dictionary_encode()
        order = pc.sort_indices(encoded.dictionary).to_numpy()
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        indices = encoded.indices.fill_null(0).to_numpy().astype(np.int64)
        found = places[indices] if len(places) else np.zeros(len(column), np.int64)
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return found


def sorted_by(rank: Ints, *, descending: bool) -> Ints:
    """Ranks turned so that ascending numbers are the order wanted, nulls last."""
    return np.where(rank < 0, 1, -rank) if descending else np.where(rank < 0, np.iinfo(np.int64).max, rank)


def _float_ranks(column: pa.Array, *, exact: bool) -> Ints:
    values: npt.NDArray[np.float64] = column.fill_null(0).cast(pa.float64()).to_numpy(zero_copy_only=False)
    _, found = np.unique(values, return_inverse=True)  # NaNs are one value, behind all others
    found = np.asarray(found, np.int64) * 2
    return found + ((values == 0) & ~np.signbit(values)) if exact else found
