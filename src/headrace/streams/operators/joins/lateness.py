"""Which rows of a stream are late, by the log alone: by their own stamps.

A row is late if the watermark of its partition before it was already past its time. No
watermark, nothing is late.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.joins.timed import EARLIEST_US
from headrace.streams.operators.joins.values import Flags
from headrace.streams.operators.operator import numbers

__all__ = ["REASON", "Counters", "watermarks_of"]

REASON = "_reason"


def watermarks_of(rows: pa.Table) -> Ints:
    """The watermarks in rows' stamps; before all time where there is none."""
    return np.asarray(one_chunk(rows["_watermark"]).fill_null(EARLIEST_US).to_numpy())


def late(rows: pa.Table, within_us: int) -> Flags:
    """Which rows are later than this."""
    watermarks = watermarks_of(rows)
    # Not `times + within_us`, which may not fit.
    return (watermarks > EARLIEST_US) & (watermarks - within_us > numbers(rows, "_event_time"))


class Counters:
    """What became of one step's rows, by input."""

    def __init__(self) -> None:
        self.counts: dict[int, dict[str, int]] = {}
        self._aside: dict[int, list[pa.Table]] = {}

    def count(self, number: int, what: str, rows: int) -> None:
        if rows:
            of_input = self.counts.setdefault(number, {})
            of_input[what] = of_input.get(what, 0) + rows

    def drop(self, number: int, rows: pa.Table, which: Flags, reason: str, *, by_clock: bool = False) -> None:
        """Counts rows as dropped and puts them aside.

        `by_clock`: not by their stamps, but because their partition had been taken for idle.
        Such rows are counted as "forgotten" too.
        """
        count = int(which.sum())
        if count:
            self.count(number, "dropped", count)
            self.count(number, "forgotten", count if by_clock else 0)
            dropped = rows.filter(pa.array(which))
            reasons = pa.array([reason]).take(pa.array(np.zeros(count, np.int64)))
            self._aside.setdefault(number, []).append(dropped.append_column(REASON, reasons))

    @property
    def aside(self) -> dict[int, pa.Table]:
        return {number: pa.concat_tables(tables) for number, tables in self._aside.items()}


def without(rows: pa.Table, which: Flags) -> pa.Table:
    """The rows but for some."""
    return rows.filter(pa.array(~which)) if which.any() else rows


def nothing_left(tables: Sequence[pa.Table | None]) -> bool:
    return all(table is None or not table.num_rows for table in tables)
