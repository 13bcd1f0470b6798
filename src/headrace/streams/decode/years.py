"""The years 1 to 9999, which every store and every language can write down; no Spark, no I/O."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["FIRST_US", "LAST_US", "check_years"]

FIRST_US: Final = -62_135_596_800_000_000
LAST_US: Final = 253_402_300_799_999_999
_DAY_US = 86_400_000_000


def check_years(column: pa.Array) -> None:
    """Raises ArrowInvalid if a time or a date in the column, at any depth, is of another year.

    Arrow reads such texts: the year 0, and the first and the last day in zones that are
    ahead of or behind UTC.
    """
    kind = column.type
    if pa.types.is_struct(kind):
        for each in column.flatten():
            check_years(each)
    elif pa.types.is_list(kind):
        check_years(column.flatten())
    elif pa.types.is_timestamp(kind):
        _check_between(column.cast(pa.int64()), FIRST_US, LAST_US)
    elif pa.types.is_date32(kind):
        _check_between(column.cast(pa.int32()), FIRST_US // _DAY_US, LAST_US // _DAY_US)


def _check_between(numbers: pa.Array, first: int, last: int) -> None:
    found = pc.min_max(numbers)
    if found["min"].is_valid and not first <= found["min"].as_py() <= found["max"].as_py() <= last:
        raise pa.ArrowInvalid("a time outside the years 1 to 9999")
