"""Tests in which something has to be said in time, on a machine that may stand still meanwhile.

A lease that is renewed too late has rightly run out, and a connection that was idle for
too long is rightly closed. So such a test measures its own pauses, and what fails after
one that was too long is tried again with more time.
"""

import time
from collections.abc import Callable

__all__ = ["Pulse", "judged"]


class Pulse:
    """The longest time between two beats."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()
        self.longest_pause_s = 0.0

    def beat(self) -> None:
        now_s = time.monotonic()
        self.longest_pause_s = max(self.longest_pause_s, now_s - self._last_s)
        self._last_s = now_s


def judged(attempt: Callable[[float, Pulse], None], *limits_s: float) -> None:
    """Makes the attempt, which is given a limit and beats more often; raises what fails within the limit."""
    for limit_s in limits_s:
        pulse = Pulse()
        try:
            attempt(limit_s, pulse)
        except Exception:
            pulse.beat()
            if pulse.longest_pause_s < limit_s:
                raise
        else:
            return
    raise AssertionError(f"this machine stood still for {limits_s[-1]} s, whatever it was given")
