"""Coroutines that are begun where they are made, and waited for only if they have to wait.

Most of what may wait seldom does. Begun at once, it then costs neither a task nor a
turn of the event loop, and what it does comes in the order in which it was asked for.
"""

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

__all__ = ["Begun", "begin"]

T = TypeVar("T")


class Begun(Generic[T]):
    """A coroutine that waits for something; whoever awaits this, once, goes on with it. Or it is closed."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        coroutine, waits_for = self._coroutine, [self._waits_for]
        self._waits_for = None  # nothing here may keep a failure: its traceback may hold much
        try:
            while True:
                try:
                    yield waits_for.pop()
                except BaseException as error:  # passed on, whatever it is
                    waits_for.append(coroutine.throw(error))
                else:
                    waits_for.append(coroutine.send(None))
        except StopIteration as ended:
            result: T = ended.value
            return result

    def close(self) -> None:
        """Gives it up where it waits."""
        self._coroutine.close()


def begin(coroutine: Coroutine[Any, Any, T]) -> T | Begun[T]:
    """What the coroutine returns, if it does so without waiting; else the rest of it."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    return Begun(coroutine, waits_for)
