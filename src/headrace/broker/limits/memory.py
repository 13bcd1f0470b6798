"""A bound on the memory that requests may take, shared by all connections."""

from collections import deque
from collections.abc import Callable

from headrace.wire import SMALL_FRAME_BYTES, FrameBuffers

__all__ = ["MemoryBudget", "RequestMemory"]


class MemoryBudget:
    """Bytes that may be held at once, and one holder at a time that may exceed them.

    A large request reserves step by step as it arrives. If all that is held belongs
    to requests that are not whole yet, none of them could ever finish; so one
    holder may go on beyond the total, up to the size of the largest request, until
    no more than the total is held again. That is for one request: the next of the same
    holder waits. Those who were refused are called, in order, when bytes come back.
    One thread.
    """

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.held_bytes = 0
        self._beyond: object | None = None
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for bytes."""
        return bool(self._waiting)

    def try_reserve(self, size: int, holder: object, *, begins: bool = False) -> bool:
        """Reserves `size` bytes if they are free now, or if this holder may exceed the total.

        `begins`: it is the first reservation of a request.
        """
        if self.held_bytes + size > self.total_bytes and not self._may_exceed(holder, begins=begins):
            return False
        self.held_bytes += size
        return True

    def _may_exceed(self, holder: object, *, begins: bool) -> bool:
        if self._beyond is None:
            self._beyond = holder
            return True
        return self._beyond is holder and not begins

    def when_released(self, call: Callable[[], None]) -> None:
        """Calls once, when bytes have come back and it is this caller's turn."""
        self._waiting.append(call)

    def release(self, size: int) -> None:
        """Gives bytes back."""
        self.held_bytes -= size
        if self.held_bytes <= self.total_bytes:
            self._beyond = None
        for _ in range(len(self._waiting)):
            if self.held_bytes >= self.total_bytes and self._beyond is not None:
                return
            self._waiting.popleft()()


class RequestMemory(MemoryBudget):
    """The budget of requests over `SMALL_FRAME_BYTES`, and the buffers that they are received into."""

    def __init__(self, total_bytes: int) -> None:
        super().__init__(total_bytes)
        self._buffers = FrameBuffers(total_bytes)
        self.take_buffer = self._buffers.take

    def release_frame(self, frame: bytearray) -> None:
        """Gives back what a large frame had reserved, once nobody writes from it any more."""
        if len(frame) > SMALL_FRAME_BYTES:
            self.release(len(frame))
            self._buffers.give_back(frame)
