"""Threads for what blocks: the event loop goes on meanwhile."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

__all__ = ["WorkerThreads"]

T = TypeVar("T")


class WorkerThreads:
    """Runs calls that block on at most `count` threads, in the order in which they came."""

    def __init__(self, count: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(count, name)

    def run(self, call: Callable[..., T], *args: Any, **named: Any) -> "asyncio.Future[T]":
        """What the call returns or raises, for the event loop to await."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._executor, lambda: call(*args, **named))

    def close(self) -> None:
        """Returns when the calls that were begun are over."""
        self._executor.shutdown()
