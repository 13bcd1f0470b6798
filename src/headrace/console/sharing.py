"""What many subscribers want at once is read once.

Subscribers of one thing stand at the same place most of the time. The first who asks for
what comes next reads it; those who ask meanwhile, or soon after, get the same answer.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

__all__ = ["Shared", "Sharing"]

T = TypeVar("T")


class Shared(Generic[T]):
    """The last few answers by place; event loop only.

    Only for what stays true: an answer may be given to somebody who asks later.
    """

    def __init__(self, kept: int = 4) -> None:
        self._kept = kept
        self._answers: OrderedDict[str, asyncio.Task[T]] = OrderedDict()

    async def get(self, place: str, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer for a place; a failure, or None, is for those who waited for it, and is not kept."""
        task = self._answers.get(place)
        if task is None:
            task = self._answers[place] = asyncio.create_task(read())
            while len(self._answers) > self._kept:
                self._answers.popitem(last=False)
            task.add_done_callback(partial(self._ended, place))
        return await asyncio.shield(task)

    def _ended(self, place: str, task: "asyncio.Task[T]") -> None:
        failed = task.cancelled() or task.exception() is not None or task.result() is None
        if failed and self._answers.get(place) is task:
            del self._answers[place]


class Sharing:
    """What is shared, by what it is about; the least used of many is forgotten."""

    def __init__(self, most: int = 16) -> None:
        self._most = most
        self._shared: OrderedDict[tuple[str, ...], Shared[Any]] = OrderedDict()

    def of(self, key: tuple[str, ...]) -> Shared[Any]:
        """The answers about one thing."""
        found = self._shared.setdefault(key, Shared())
        self._shared.move_to_end(key)
        while len(self._shared) > self._most:
            self._shared.popitem(last=False)
        return found
