"""Rows reduced where they are read, to what the shuffle has to carry."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.streams.operators.aggregates.layout import FROM, Layout
from headrace.streams.operators.grouping import Groups, Ints, one_chunk
from headrace.streams.operators.keys import dense, key_columns, numbered
from headrace.streams.operators.windows.windows import Hopping, Tumbling, ends

__all__ = ["pane_partial", "session_partial", "sliding_partial"]

Classes = npt.NDArray[np.int8]


def pane_partial(
    layout: Layout, window: Tumbling | Hopping, rows: pa.Table, classes: Classes, counted_from: Ints | None
) -> pa.Table:
    """One row per pane, first window and key, ordered so, keys by their hash.

    `counted_from` is given where rows do not count in all windows of their pane.
    """
    ids, keys, hashes = numbered(key_columns(rows, layout.keys), rows.num_rows)
    panes = _times(rows) // window.pane_us
    pairs = None
    if counted_from is not None:
        panes, *pairs = _slots(panes, counted_from)
    first, last = (int(panes.min()), int(panes.max())) if len(panes) else (0, 0)
    count = max(len(hashes), 1)
    if last > first:
        ids = (panes - first) * count + ids
    ids, used = dense(ids, count * (last - first + 1))
    groups, of_key, of_pane = Groups(ids, len(used)), used % count, used // count + first
    starts = (of_pane if pairs is None else pairs[0][of_pane]) * window.pane_us
    places = [pa.array(starts)]
    if isinstance(window, Hopping):
        places.append(pa.array(ends(window, starts)[0] if pairs is None else pairs[1][of_pane]))
    return _table(layout, rows, classes, groups, keys, hashes, of_key, places)


def _slots(panes: Ints, froms: Ints) -> tuple[Ints, Ints, Ints]:
    """Numbers the pairs of pane and first window, in order: the number of each row; the pairs."""
    pairs, slots = np.unique(np.stack([panes, froms]), axis=1, return_inverse=True)
    return slots.reshape(-1), pairs[0], pairs[1]


def session_partial(layout: Layout, gap_us: int, rows: pa.Table, classes: Classes) -> pa.Table:
    """One row per key and stretch of events at most the gap apart, ordered by hash."""
    ids, keys, hashes = numbered(key_columns(rows, layout.keys), rows.num_rows)
    times = _times(rows)
    order = by_two(ids, times)
    ids, times = ids[order], times[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (ids[1:] != ids[:-1]) | (times[1:] - times[:-1] > gap_us)
    starts = np.flatnonzero(new)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(new) - 1
    last = np.append(starts[1:], len(order))[: len(starts)] - 1
    places = [pa.array(times[starts]), pa.array(times[last])]
    return _table(layout, rows, classes, Groups(numbers, len(starts)), keys, hashes, ids[starts], places)


def sliding_partial(layout: Layout, rows: pa.Table, classes: Classes, counted_from: Ints | None) -> pa.Table:
    """One row per event, ordered by hash."""
    ids, keys, hashes = numbered(key_columns(rows, layout.keys), rows.num_rows)
    order = np.argsort(ids, kind="stable")
    rows, ids, classes = rows.take(pa.array(order)).combine_chunks(), ids[order], classes[order]
    counted = _times(rows) if counted_from is None else counted_from[order]
    places = [one_chunk(rows[name]) for name in layout.places if name != FROM] + [pa.array(counted)]
    return _table(layout, rows, classes, Groups.singletons(len(ids)), keys, hashes, ids, places)


def by_two(first: Ints, second: Ints) -> Ints:
    """The order of rows by the first column, then the second; both hold small or similar numbers."""
    if not len(first):
        return np.zeros(0, np.int64)
    least, most = int(second.min()), int(second.max())
    if int(first.max()) * (most - least + 1) < 1 << 62:
        return np.argsort(first * (most - least + 1) + (second - least))
    return np.lexsort((second, first))


def _table(
    layout: Layout,
    rows: pa.Table,
    classes: Classes,
    groups: Groups,
    keys: list[pa.Array],
    hashes: npt.NDArray[np.uint64],
    of_key: Ints,
    places: list[pa.Array],
) -> pa.Table:
    taken = pa.array(of_key)
    return layout.table(
        [column.take(taken) for column in keys],
        pa.array(hashes[of_key]),
        places,
        _counts(classes, groups),
        layout.partial_cells(rows, groups),
    )


def _counts(classes: Classes, groups: Groups) -> list[pa.Array]:
    """How many rows of each group were on time, and how many late."""
    if not classes.any():
        return [pa.array(groups.sizes), pa.array(np.zeros(groups.count, np.int64))]
    late = groups.sum((classes > 0).astype(np.int64))
    return [pa.array(groups.sizes - late), pa.array(late)]


def _times(rows: pa.Table) -> Ints:
    return np.asarray(one_chunk(rows["_event_time"]).to_numpy())
