"""Tables of changes: what a step publishes."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.change_kind import ChangeKind
from headrace.streams.operators.aggregates.layout import INSTANT, Layout
from headrace.streams.operators.grouping import Ints, one_chunk

__all__ = ["CLOSE", "CORRECTION", "RETRACTION", "UPDATE", "beyond_calendar", "change_table", "together"]

_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999
CLOSE, UPDATE, CORRECTION, RETRACTION = map(int, ChangeKind)


def instants(times_us: Ints) -> pa.Array:
    return pa.array(times_us).view(INSTANT)


def change_table(
    layout: Layout,
    table: pa.Table,
    windows: tuple[Ints, Ints],
    kinds: Ints | int,
    before: pa.Array | None,
    after: pa.Array | None,
) -> pa.Table:
    """One change per row of `table`, whose keys it takes; none where there was no result and is none.

    A result that was there and is not any more is retracted, whatever its kind. Windows
    that are not within the calendar have none.
    """
    rows = table.num_rows
    nothing = pa.nulls(rows, layout.result_struct)
    if after is not None and after.null_count:
        kinds = np.where(after.is_valid().to_numpy(zero_copy_only=False), kinds, RETRACTION)
    columns = {name: one_chunk(table[name]) for name in (*layout.keys, *layout.event)}
    columns["window_start"], columns["window_end"] = (instants(each) for each in windows)
    columns["kind"] = pa.array(np.broadcast_to(np.asarray(kinds, np.int8), rows).copy())
    columns["before"] = nothing if before is None else before
    columns["after"] = nothing if after is None else after
    changes, beyond = pa.table(columns), beyond_calendar(*windows)
    if len(beyond) or (columns["before"].null_count and columns["after"].null_count):
        shown = pc.or_(columns["before"].is_valid(), columns["after"].is_valid())
        shown = shown.to_numpy(zero_copy_only=False).copy()
        shown[beyond] = False
        changes = changes.filter(pa.array(shown))
    return changes


def beyond_calendar(starts: Ints, ends: Ints) -> Ints:
    """The windows that begin before the year 1 or end behind 9999: nobody could write down when."""
    return np.flatnonzero((starts < _FIRST_US) | (ends > _LAST_US))


def together(changes: Sequence[pa.Table]) -> pa.Table | None:
    """All changes, retractions first, so that a result can take the place of one that is withdrawn."""
    changes = [each for each in changes if each.num_rows]
    if not changes:
        return None
    table = pa.concat_tables(changes).combine_chunks()
    kinds = table["kind"].to_numpy()
    if (kinds == RETRACTION).any() and not (kinds == RETRACTION).all():
        table = table.take(pa.array(np.argsort(kinds != RETRACTION, kind="stable")))
    return table
