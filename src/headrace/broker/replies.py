"""An answer on its way to the client."""

import dataclasses
from collections.abc import Callable

from headrace.wire import Frame

__all__ = ["Answer", "Reply"]


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


class Answer:
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
