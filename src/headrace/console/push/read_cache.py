"""What many subscribers want at once is read once, and the answer kept for a while.

Subscribers of one thing are at the same position most of the time. The first who asks for
what comes next reads it; those who ask meanwhile, or soon after, get the same answer.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

__all__ = ["ReadCache", "ReadCaches"]

T = TypeVar("T")


class ReadCache(Generic[T]):
    """The last few answers by position; event loop only.

    Only for what stays true: an answer may be given to somebody who asks later.
    """

    def __init__(self, kept: int = 4) -> None:
        self._kept = kept
        self._answers: OrderedDict[str, asyncio.Task[T]] = OrderedDict()

    @property
    def size(self) -> int:
        """Bytes of the answers that are kept, as far as they tell."""
        return sum(getattr(each.result(), "size", 0) for each in self._answers.values() if not _failed(each))

    async def get(self, position: str, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer for a position; a failure, or None, is for those who waited for it, and is not kept."""
        task = self._answers.get(position)
        if task is None:
            task = self._answers[position] = asyncio.create_task(read())
            while len(self._answers) > self._kept:
                self._answers.popitem(last=False)
            task.add_done_callback(partial(self._ended, position))
        return await asyncio.shield(task)

    def _ended(self, position: str, task: "asyncio.Task[T]") -> None:
        if (_failed(task) or task.result() is None) and self._answers.get(position) is task:
            del self._answers[position]


def _failed(task: "asyncio.Task[Any]") -> bool:
    """Whether there is no answer, or not yet."""
    return not task.done() or task.cancelled() or task.exception() is not None


class ReadCaches:
    """The caches of a console, by what they are about; the least used of many, or of much, is forgotten."""

    def __init__(self, most: int = 16, most_bytes: int = 16 * 1024 * 1024) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._caches: OrderedDict[tuple[str, ...], ReadCache[Any]] = OrderedDict()

    def of(self, key: tuple[str, ...]) -> ReadCache[Any]:
        """The answers about one thing."""
        found = self._caches.setdefault(key, ReadCache())
        self._caches.move_to_end(key)
        size = sum(each.size for each in self._caches.values())
        while len(self._caches) > self._most or (size > self._most_bytes and len(self._caches) > 1):
            size -= self._caches.popitem(last=False)[1].size
        return found
