"""A windowed aggregation: what to compute, split into what happens where.

Rows are classified and reduced to *partials* where they are read (`partial`); partials
of one bucket of keys are merged into state (`OpenWindows.advance`), which publishes
changes of results as the watermark passes. Results do not depend, to the last bit, on
how rows were batched, partitioned or ordered on the way.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.event_time import NO_WATERMARK
from headrace.streams.operators.aggregates.aggregates import Aggregate
from headrace.streams.operators.aggregates.layout import FROM, INSTANT, Layout, layout_for
from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.windows.missed import missed_windows
from headrace.streams.operators.windows.pane_state import PaneState
from headrace.streams.operators.windows.partials import pane_partial, session_partial, sliding_partial
from headrace.streams.operators.windows.session_state import SessionState
from headrace.streams.operators.windows.sliding_state import SlidingState
from headrace.streams.operators.windows.state import OpenWindows
from headrace.streams.operators.windows.windows import (
    Hopping,
    Session,
    Sliding,
    Tumbling,
    Window,
    ends,
    first_counted,
)

__all__ = ["DROPPED", "LATE", "PUNCTUAL", "WindowOperator"]

PUNCTUAL, LATE, DROPPED = 0, 1, 2
_BEFORE_ALL = NO_WATERMARK >> 1  # from which a time can still be taken
_RESERVED = ("window_start", "window_end", "kind", "before", "after")


@dataclass(frozen=True)
class WindowOperator:
    """Aggregates of the rows of each key in each window.

    Rows have the columns `_partition` int32, `_offset` int64, `_event_time` int64 µs and
    `_watermark` int64 µs (that of the row's partition before the row; null: none yet).
    `emit` "close" publishes a result when its window closes, "update" after every batch
    that changes it. Late rows correct published results for `correct_for_us`; closed
    windows are kept for the longer of that and `keep_closed_us`.
    """

    window: Window
    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    emit: Literal["close", "update"] = "close"
    correct_for_us: int = 0
    keep_closed_us: int = 0

    def __post_init__(self) -> None:
        names = [*self.keys, *(name for name, _ in self.aggregates)]
        for name in names:
            if names.count(name) > 1 or name in _RESERVED or name[:1] in ("_", "#"):
                raise RequestError(f"{name!r} cannot name a column of a window; give it another name")
        if self.emit not in ("close", "update"):
            raise RequestError(f"emit is {self.emit!r}; it must be 'close' or 'update'")
        if self.correct_for_us < 0 or self.keep_closed_us < 0:
            raise RequestError("correct_for_us and keep_closed_us cannot be negative")

    @property
    def keep_us(self) -> int:
        """How long a closed window can still be corrected."""
        return max(self.correct_for_us, self.keep_closed_us)

    @property
    def places(self) -> tuple[str, ...]:
        """The columns of a partial that place it in time."""
        if isinstance(self.window, Session):
            return ("_first", "_last")
        if isinstance(self.window, Sliding):
            return ("_event_time", "_partition", "_offset", FROM)
        return ("_pane", FROM) if isinstance(self.window, Hopping) else ("_pane",)

    def layout(self, schema: pa.Schema) -> Layout:
        return layout_for(self.keys, self.places, self.aggregates, schema)

    def result_schema(self, rows_schema: pa.Schema) -> pa.Schema:
        """Keys, for a sliding window the event's partition and offset, the window, the aggregates."""
        layout = self.layout(rows_schema)
        event = [pa.field("_partition", pa.int32()), pa.field("_offset", pa.int64())]
        window = [pa.field("window_start", INSTANT), pa.field("window_end", INSTANT)]
        return pa.schema(
            [
                *layout.key_fields,
                *(event if isinstance(self.window, Sliding) else []),
                *window,
                *layout.result_fields,
            ]
        )

    def classify(self, rows: pa.Table) -> npt.NDArray[np.int8]:
        """By the row and its partition alone: the worst that becomes of it in any of its windows.

        0 on time for all of them, 1 late for some but still counted in all, 2 dropped
        from some, though it may count in others.
        """
        earliest, _ = ends(self.window, _column(rows, "_event_time"))
        watermarks = _watermarks(rows)
        late = earliest <= watermarks
        classes: npt.NDArray[np.int8] = late.astype(np.int8)
        classes[late & (earliest + self.correct_for_us <= watermarks)] = DROPPED
        return classes

    def missed(self, rows: pa.Table) -> pa.Table:
        """Which windows dropped rows missed: see `missed_windows`."""
        times = _column(rows, "_event_time")
        earliest, latest = ends(self.window, times)
        if isinstance(self.window, Session):
            bounds = times, times + self.window.gap_us
        elif isinstance(self.window, Sliding):
            bounds = times - self.window.size_us, times
        else:
            bounds = earliest - self.window.size_us, earliest
        return missed_windows(self.window, bounds, latest, _watermarks(rows) - self.correct_for_us)

    def partial(self, rows: pa.Table, classes: npt.NDArray[np.int8] | None = None) -> pa.Table:
        """What the rows come to in the windows where they count: a table for `OpenWindows.advance`.

        `classes` is what `classify` found, for a caller that has asked it already.
        """
        layout = self.layout(rows.schema)
        classes = self.classify(rows) if classes is None else classes
        if (classes == DROPPED).any():
            _, latest = ends(self.window, _column(rows, "_event_time"))
            counted = latest + self.correct_for_us > _watermarks(rows)
            rows, classes = rows.filter(pa.array(counted)), classes[counted]
        rows = rows.combine_chunks()
        if isinstance(self.window, Session):
            return session_partial(layout, self.window.gap_us, rows, classes)
        counted_from = self._counted_from(rows, classes)
        if isinstance(self.window, Sliding):
            return sliding_partial(layout, rows, classes, counted_from)
        return pane_partial(layout, self.window, rows, classes, counted_from)

    def _counted_from(self, rows: pa.Table, classes: npt.NDArray[np.int8]) -> Ints | None:
        """The `window_end` of the first window in which each row counts; None: of the first it is in."""
        if isinstance(self.window, Session | Tumbling) or not (classes == DROPPED).any():
            return None
        times = _column(rows, "_event_time")
        earliest = times if isinstance(self.window, Sliding) else ends(self.window, times)[0]
        return first_counted(self.window, earliest, _watermarks(rows) - self.correct_for_us)

    def describe(self) -> dict[str, Any]:
        """Plain values that say what it computes, with the version of its stored state.

        `keep_closed_us` is not among them: a state kept for longer, or less long, is taken up.
        """
        return {
            "operator": "windows",
            "version": 1,
            "window": self.window.describe(),
            "by": list(self.keys),
            "aggregates": {name: each.describe() for name, each in self.aggregates},
            "emit": self.emit,
            "correct_for_us": self.correct_for_us,
        }

    def new_state(self) -> OpenWindows:
        return self.load(None, ())

    def load(self, snapshot: bytes | None, deltas: Iterable[bytes]) -> OpenWindows:
        """The state as it was when the last of the deltas was made."""
        state: OpenWindows
        if isinstance(self.window, Session):
            state = SessionState(self)
        elif isinstance(self.window, Sliding):
            state = SlidingState(self)
        else:
            state = PaneState(self)
        for stored in (*(() if snapshot is None else (snapshot,)), *deltas):
            state.replay(stored)
        return state


def _column(rows: pa.Table, name: str) -> Ints:
    return np.asarray(one_chunk(rows[name]).to_numpy())


def _watermarks(rows: pa.Table) -> Ints:
    """Those of the rows' partitions; where there is none yet, one before everything."""
    return np.asarray(one_chunk(rows["_watermark"]).fill_null(_BEFORE_ALL).to_numpy())
