"""An answer on its way to the client."""

import dataclasses
from collections.abc import Callable

from headrace.wire import Frame

__all__ = ["Reply"]


@dataclasses.dataclass(slots=True)
class Reply:
    """A frame, and what to give back once it is sent or given up (pinned files)."""

    frame: Frame
    on_release: Callable[[], None] | None = None

    def release(self) -> None:
        """Gives back what the answer held; once."""
        call, self.on_release = self.on_release, None
        if call is not None:
            call()
