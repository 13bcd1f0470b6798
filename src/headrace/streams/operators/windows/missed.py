"""Which windows rows missed, for the late topic."""

import numpy as np
import pyarrow as pa

from headrace.streams.operators.grouping import Ints
from headrace.streams.operators.windows.windows import Hopping, Sliding, Window, first_counted

__all__ = ["MISSED_COLUMNS", "missed_windows"]

MISSED_COLUMNS = ("_window_start", "_window_end", "_missed_windows", "_every", "_counted_from")


def missed_windows(window: Window, bounds: tuple[Ints, Ints], latest: Ints, watermarks: Ints) -> pa.Table:
    """Of each row the earliest window that it missed; how many, and how far apart they begin; and the end
    of the first in which it counts, null if it counts nowhere.

    `bounds` are those of the earliest, `latest` is the watermark that ends the row's last
    window; those that `watermarks` end are missed.
    """
    start, end = bounds
    many, every, counted = np.ones(len(start), np.int64), 0, end
    if isinstance(window, Hopping | Sliding):
        counted = first_counted(window, end, watermarks)
    if isinstance(window, Hopping):
        every = window.step_us
        many = (np.minimum(counted, latest + every) - end) // every
    columns = [start, end, many, np.full(len(start), every)]
    nowhere = latest <= watermarks
    return pa.table([*map(pa.array, columns), pa.array(counted, mask=nowhere)], names=list(MISSED_COLUMNS))
