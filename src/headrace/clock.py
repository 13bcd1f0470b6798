"""Where time comes from: the system's clock, or one that a test moves by hand."""

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """Milliseconds since the epoch, and a monotone counter for measuring spans."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds; may jump."""

    def monotonic_ms(self) -> int:
        """Milliseconds that only ever grow; meaningless but for differences."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
