"""Threads for whatever waits for the log or a disk, bounded in number and in queue."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from headrace.errors import RetriableError

__all__ = ["Workers"]

P = ParamSpec("P")
T = TypeVar("T")


class Workers:
    """Runs blocking calls off the event loop, `threads` at a time, `max_waiting` in line behind them.

    A call that would have to wait behind more raises RetriableError at once. The event
    loop only may call `run`; a cancelled caller leaves its call to end by itself.
    """

    def __init__(self, threads: int, max_waiting: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="headrace-console")
        self._most = threads + max_waiting
        self._under_way = 0

    async def run(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What the call returns or raises."""
        if self._under_way >= self._most:
            raise RetriableError(
                f"{self._under_way} requests are already waiting for the log or a disk; try again"
            )
        self._under_way += 1
        future = self._executor.submit(call, *arguments, **named)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _soon(loop, self._ended))
        return await asyncio.wrap_future(future)

    def _ended(self) -> None:
        self._under_way -= 1

    def close(self) -> None:
        """Drops what waits, and does not wait for what runs."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
