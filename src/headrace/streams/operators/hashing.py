"""Keys in the one form in which equal ones have equal bytes, and hence equal hashes (`column_hash`)."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.column_hash import Hashes
from headrace.errors import RequestError
from headrace.streams.operators.grouping import one_chunk

__all__ = ["distinct", "normal_key", "normal_type", "same"]


def normal_type(kind: pa.DataType, name: str) -> pa.DataType:
    """The type in which keys of this one are kept; nested types are refused."""
    if pa.types.is_dictionary(kind):
        return normal_type(kind.value_type, name)
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_binary_view(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_interval(kind):
        raise RequestError(f"column {name!r} of type {kind} cannot be a key; select parts of it as columns")
    return kind


def normal_key(column: pa.Array, name: str) -> pa.Array:
    """The key column in the one form in which equal keys have equal bytes.

    As Spark does when it groups: -0.0 is 0.0 and every NaN is the same NaN. Text and
    bytes in other layouts become plain ones.
    """
    kind = normal_type(column.type, name)
    if column.type != kind:
        column = column.cast(kind)
    return _normal_floats(column) if pa.types.is_floating(kind) else column


def _normal_floats(column: pa.Array) -> pa.Array:
    values = column.fill_null(0).to_numpy(zero_copy_only=False) + 0.0
    values[np.isnan(values)] = np.nan
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(values, column.type, mask=mask, from_pandas=False)


def distinct(hashes: Hashes) -> Hashes:
    """The hashes that occur, ascending. (numpy's own `unique` takes several times as long.)"""
    hashes = np.sort(hashes)
    new = np.ones(len(hashes), np.bool_)
    new[1:] = hashes[1:] != hashes[:-1]
    return hashes[new]


def same(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    """Which rows of two normal key columns are equal; nulls are, and so are NaNs."""
    if pa.types.is_floating(left.type):
        left, right = _bits(left), _bits(right)
    equal = pc.equal(left, right)
    if left.null_count or right.null_count:
        both = pc.and_(left.is_null(), right.is_null())
        equal = pc.or_(equal.fill_null(False), both)
    return np.asarray(one_chunk(equal).to_numpy(zero_copy_only=False))


def _bits(column: pa.Array) -> pa.Array:
    return column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
