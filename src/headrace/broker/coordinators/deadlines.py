"""When a coordinator must act on its own: the earliest deadline of each member, transaction or lease."""

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from headrace.clock import Clock

__all__ = ["Deadlines"]

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """One deadline for each key, on the monotonic clock. Event loop only.

    A deadline only ever moves to an earlier time; one that turns out to be too early is
    scheduled again by its owner once it is due.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, K]] = []
        self._numbers = itertools.count()  # keys need not be comparable
        self._due_ms: dict[K, int] = {}
        self._wake = asyncio.Event()

    @property
    def now_ms(self) -> int:
        """The time in which deadlines are measured."""
        return self._clock.monotonic_ms()

    def __contains__(self, key: K) -> bool:
        return key in self._due_ms

    def schedule(self, key: K, due_ms: int | None) -> None:
        """Has the key come up at that time, unless it does so before; None: no need to."""
        known = self._due_ms.get(key)
        if due_ms is None or (known is not None and known <= due_ms):
            return
        self._due_ms[key] = due_ms
        heapq.heappush(self._heap, (due_ms, next(self._numbers), key))
        if self._heap[0][0] == due_ms:
            self._wake.set()

    def due(self) -> Iterator[K]:
        """The keys whose time has come; each is to be scheduled again if it has another deadline."""
        now_ms = self.now_ms
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, _, key = heapq.heappop(self._heap)
            if self._due_ms.get(key) == due_ms:
                del self._due_ms[key]
                yield key

    def clear(self) -> None:
        self._heap.clear()
        self._due_ms.clear()

    def wake(self) -> None:
        """Ends the wait: there is something to do besides deadlines."""
        self._wake.set()

    async def wait(self, latest_ms: int) -> None:
        """Waits for the earliest deadline, for `wake`, or until the given time."""
        due_ms = min([latest_ms, *(each[0] for each in self._heap[:1])])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(due_ms - self.now_ms, 0) / 1000):
                await self._wake.wait()
        self._wake.clear()
