"""Things that change elsewhere, looked at from here for as long as somebody waits for them.

Views and topics are changed by other processes, which do not call back. One task looks
at each of them, however many subscribers there are, and wakes them when it sees
something new; nothing is looked at when nobody waits.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from headrace.errors import HeadraceError

__all__ = ["Watch", "Watches"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How long a watch rests after a look that failed, in intervals.
_REST = 10


class Watch(Generic[T]):
    """The newest value of something; event loop only.

    Inside `following` the value is looked at every `interval_s`. `version` grows with
    every value that differs from the one before. A look that fails changes nothing and
    is repeated more slowly; `failure` says why.
    """

    def __init__(self, look: Callable[[], Awaitable[T]], interval_s: float) -> None:
        self._look = look
        self._interval_s = interval_s
        self._changed = asyncio.Event()
        self._followers = 0
        self._task: asyncio.Task[None] | None = None
        self.value: T | None = None
        self.version = 0
        self.failure: HeadraceError | None = None

    @asynccontextmanager
    async def following(self) -> AsyncIterator["Watch[T]"]:
        """Keeps the watch going; the value is of this moment when the block begins, if the look succeeds."""
        self._followers += 1
        try:
            if self._task is None:
                await self._look_once()
                if self._task is None:
                    self._task = asyncio.create_task(self._run())
            yield self
        finally:
            self._followers -= 1
            if self._followers == 0 and self._task is not None:
                self._task.cancel()
                self._task = None

    async def wait_change(self, version: int, timeout_s: float) -> bool:
        """Whether a newer version came within the time; returns early, with False, when woken."""
        if self.version > version:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return self.version > version

    def wake(self) -> None:
        """Lets all who wait return: the console ends."""
        self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s * (1 if self.failure is None else _REST))
            await self._look_once()

    async def _look_once(self) -> None:
        try:
            found = await self._look()
        except HeadraceError as error:
            self.failure = error
            return
        except Exception:
            logger.exception("a watch failed, and will look again")
            self.failure = HeadraceError("internal error; see the console's log")
            return
        self.failure = None
        if self.version == 0 or found != self.value:
            self.value = found
            self.version += 1
            self._announce()


class Watches:
    """The watches of a console by what they watch; those that nobody follows are forgotten in time."""

    def __init__(self) -> None:
        self._watches: dict[tuple[str, ...], Watch[object]] = {}

    def of(self, key: tuple[str, ...], make: Callable[[], Watch[T]]) -> Watch[T]:
        """The watch of this key; made if it is not there."""
        found = self._watches.get(key)
        if found is None:
            if len(self._watches) >= _MOST:
                self._forget_idle()
            found = self._watches[key] = make()  # type: ignore[assignment]
        return found  # type: ignore[return-value]

    def wake_all(self) -> None:
        for each in self._watches.values():
            each.wake()

    def _forget_idle(self) -> None:
        self._watches = {key: each for key, each in self._watches.items() if each._followers}


_MOST = 1_000
