"""What a handler gives back: a reply, an answer that is completed later, or work that has yet to wait.

Most of what may wait seldom does. Begun where it is made (`begin`), it then costs neither a
task nor a turn of the event loop, and what it does comes in the order of the requests.
"""

import dataclasses
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from headrace.wire import Frame

__all__ = ["Begun", "DeferredReply", "Reply", "begin"]

T = TypeVar("T")


@dataclasses.dataclass(slots=True)
class Reply:
    """A frame (an empty one where none is due), and what to give back once it is sent or given up."""

    frame: Frame
    on_release: Callable[[], None] | None = None
    throttle_ms: int = 0  # the connection's next request waits for so long

    def release(self) -> None:
        """Gives back what the answer held; once."""
        call, self.on_release = self.on_release, None
        if call is not None:
            call()


class DeferredReply:
    """The answer to a produce request, from the moment its batches are appended. Event loop only.

    It is there once they are synced or refused; without a reply if the client asked for none.
    """

    __slots__ = ("_then", "is_there", "reply")

    def __init__(self) -> None:
        self.is_there = False
        self.reply: Reply | None = None
        self._then: Callable[[], None] | None = None

    def give(self, reply: Reply | None) -> None:
        """Completes it; once."""
        self.is_there, self.reply = True, reply
        if self._then is not None:
            self._then()

    def when_there(self, call: Callable[[], None]) -> None:
        """Calls once it is there, perhaps at once; there is one to be called."""
        if self.is_there:
            call()
        else:
            self._then = call


class Begun(Generic[T]):
    """A coroutine that waits for something: to be awaited, once, or closed."""

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
