"""A bound on the memory that requests may take, shared by all connections."""

from collections import deque
from collections.abc import Callable

__all__ = ["MemoryBudget"]


class MemoryBudget:
    """Bytes that may be held at once.

    A reservation larger than the whole budget is granted when nothing else is
    held, so that the largest legal request always gets through. Those who were
    refused are called, in order, when bytes come back. One thread.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.held_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def try_reserve(self, size: int) -> bool:
        """Reserves `size` bytes if they are free now."""
        if self.held_bytes and self.held_bytes + size > self.total_bytes:
            return False
        self.held_bytes += size
        return True

    def when_released(self, call: Callable[[], None]) -> None:
        """Calls once, when bytes have come back and it is this caller's turn."""
        self._waiting.append(call)

    def release(self, size: int) -> None:
        """Gives bytes back."""
        self.held_bytes -= size
        for _ in range(len(self._waiting)):
            if self.held_bytes >= self.total_bytes:
                return
            self._waiting.popleft()()
