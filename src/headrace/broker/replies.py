"""An answer on its way to the client."""

import dataclasses
from collections.abc import Callable

from headrace.wire import Frame

__all__ = ["Reply"]


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
