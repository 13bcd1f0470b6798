"""The four kinds of window, and when a row is too late for its own.

All times are int64 microseconds since the epoch, UTC. A window has *ended* when the
watermark has reached its end; a row is late for it when its partition's watermark had,
before the row came. So whether a row counts in a window is a function of the row alone.
`describe` says in plain values what a window is: checkpoints are held against it.

| kind     | what belongs together                                  | ends at             |
|----------|--------------------------------------------------------|---------------------|
| tumbling | [k * size, (k + 1) * size)                             | (k + 1) * size      |
| hopping  | [k * step, k * step + size), each in panes of gcd(...) | k * step + size     |
| sliding  | per event at t: (t - size, t]                          | t + 1               |
| session  | events at most `gap` apart: [first, last + gap)        | t + gap + 1, for    |
|          |                                                        | each event at t     |
"""

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import RequestError
from headrace.streams.operators.windows.durations import Duration, microseconds

__all__ = [
    "Hopping",
    "Session",
    "Sliding",
    "Tumbling",
    "Window",
    "ends",
    "first_counted",
    "hopping",
    "session",
    "sliding",
    "tumbling",
]

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of one size, side by side, aligned to the epoch."""

    size_us: int

    def __post_init__(self) -> None:
        _positive("the size of a tumbling window", self.size_us)

    def describe(self) -> dict[str, Any]:
        return {"window": "tumbling", "size_us": self.size_us}

    @property
    def step_us(self) -> int:
        return self.size_us

    @property
    def pane_us(self) -> int:
        return self.size_us


@dataclass(frozen=True, slots=True)
class Hopping:
    """Windows of one size that start every `step_us`, and so overlap."""

    size_us: int
    step_us: int

    def __post_init__(self) -> None:
        _positive("the size of a hopping window", self.size_us)
        _positive("the step of a hopping window", self.step_us)
        if self.step_us > self.size_us:
            raise RequestError(
                f"a hopping window of {self.size_us} µs every {self.step_us} µs would skip events; "
                "give a step that is not longer than the size"
            )

    def describe(self) -> dict[str, Any]:
        return {"window": "hopping", "size_us": self.size_us, "step_us": self.step_us}

    @property
    def pane_us(self) -> int:
        return gcd(self.size_us, self.step_us)


@dataclass(frozen=True, slots=True)
class Sliding:
    """One window per event: the event and what came less than `size_us` before it."""

    size_us: int

    def __post_init__(self) -> None:
        _positive("the size of a sliding window", self.size_us)

    def describe(self) -> dict[str, Any]:
        return {"window": "sliding", "size_us": self.size_us}


@dataclass(frozen=True, slots=True)
class Session:
    """Events of a key that are at most `gap_us` apart from the next."""

    gap_us: int

    def __post_init__(self) -> None:
        _positive("the gap of a session window", self.gap_us)

    def describe(self) -> dict[str, Any]:
        return {"window": "session", "gap_us": self.gap_us}


Window = Tumbling | Hopping | Sliding | Session


def tumbling(size: Duration) -> Tumbling:
    """Windows side by side: `tumbling("1 minute")`."""
    return Tumbling(microseconds(size))


def hopping(size: Duration, *, every: Duration) -> Hopping:
    """Windows that overlap: `hopping("10 minutes", every="1 minute")`."""
    return Hopping(microseconds(size), microseconds(every))


def sliding(size: Duration) -> Sliding:
    """What came in the last while, at each event: `sliding("1 minute")`."""
    return Sliding(microseconds(size))


def session(gap: Duration) -> Session:
    """Events without a pause longer than the gap: `session("30 minutes")`."""
    return Session(microseconds(gap))


def ends(window: Window, event_times: Times) -> tuple[Times, Times]:
    """The watermarks that end the earliest and the latest window of each row."""
    if isinstance(window, Session):
        last = event_times + window.gap_us + 1
        return last, last
    if isinstance(window, Sliding):
        return event_times + 1, event_times + window.size_us
    first = ((event_times - window.size_us) // window.step_us + 1) * window.step_us + window.size_us
    if isinstance(window, Tumbling):
        return first, first
    return first, event_times // window.step_us * window.step_us + window.size_us


def first_counted(window: Hopping | Sliding, earliest: Times, watermarks: Times | int) -> Times:
    """From which window on a row counts, by its `window_end`: the first that had not ended.

    `earliest` is the `window_end` of each row's earliest window.
    """
    if isinstance(window, Sliding):
        return np.maximum(earliest, watermarks)
    following = ((watermarks - window.size_us) // window.step_us + 1) * window.step_us + window.size_us
    return np.maximum(earliest, following)


def _positive(what: str, value_us: int) -> None:
    if value_us <= 0:
        raise RequestError(f"{what} is {value_us} µs; it must be longer than nothing")
