"""The four kinds of window, and when a row is too late for its own.

All times are int64 microseconds since the epoch, UTC. A *deadline* is a pure function
of the row's event time: a row is late when its partition's watermark had reached its
deadline before the row came.

| kind     | what belongs together                                  | deadline of a row   |
|----------|--------------------------------------------------------|---------------------|
| tumbling | [k * size, (k + 1) * size)                             | the window's end    |
| hopping  | [k * step, k * step + size), each in panes of gcd(...) | its pane's end      |
| sliding  | per event at t: (t - size, t]                          | t + 1               |
| session  | events at most `gap` apart: [first, last + gap)        | t + 1               |
"""

from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt

from headrace.errors import RequestError
from headrace.streams.operators.durations import Duration, microseconds

__all__ = [
    "Hopping",
    "Session",
    "Sliding",
    "Tumbling",
    "Window",
    "deadlines",
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

    @property
    def pane_us(self) -> int:
        return gcd(self.size_us, self.step_us)


@dataclass(frozen=True, slots=True)
class Sliding:
    """One window per event: the event and what came less than `size_us` before it."""

    size_us: int

    def __post_init__(self) -> None:
        _positive("the size of a sliding window", self.size_us)


@dataclass(frozen=True, slots=True)
class Session:
    """Events of a key that are at most `gap_us` apart from the next."""

    gap_us: int

    def __post_init__(self) -> None:
        _positive("the gap of a session window", self.gap_us)


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


def deadlines(window: Window, event_times: Times) -> Times:
    """The deadline of each row, from its event time alone."""
    if isinstance(window, Tumbling | Hopping):
        return (event_times // window.pane_us + 1) * window.pane_us
    return event_times + 1


def _positive(what: str, value_us: int) -> None:
    if value_us <= 0:
        raise RequestError(f"{what} is {value_us} µs; it must be longer than nothing")
