"""Tables of changes: what a step publishes."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.layout import INSTANT, Layout

__all__ = ["CLOSE", "CORRECTION", "RETRACTION", "UPDATE", "change_table", "together"]

CLOSE, UPDATE, CORRECTION, RETRACTION = 0, 1, 2, 3


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
    """One change per row of `table`, whose keys it takes."""
    rows = table.num_rows
    nothing = pa.nulls(rows, layout.result_struct)
    columns = {name: one_chunk(table[name]) for name in (*layout.keys, *layout.event)}
    columns["window_start"], columns["window_end"] = (instants(each) for each in windows)
    columns["kind"] = pa.array(np.broadcast_to(np.asarray(kinds, np.int8), rows).copy())
    columns["before"] = nothing if before is None else before
    columns["after"] = nothing if after is None else after
    return pa.table(columns)


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
