"""Which window a row was too late for, for the late topic."""

import numpy as np
import numpy.typing as npt

from headrace.streams.operators import Session, Sliding, Window

__all__ = ["window_bounds"]

Times = npt.NDArray[np.int64]


def window_bounds(window: Window, event_times: Times) -> tuple[Times, Times]:
    """Start and end of the window, or of the pane that its windows share, of each event."""
    if isinstance(window, Session):
        return event_times, event_times + window.gap_us
    if isinstance(window, Sliding):
        return event_times - window.size_us, event_times
    starts = event_times // window.pane_us * window.pane_us
    return starts, starts + window.pane_us
