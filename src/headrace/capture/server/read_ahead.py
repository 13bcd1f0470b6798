"""Reads a stream of a server on, in a thread, while its consumer is busy with something else.

The consumer reads for itself, which costs the least. Once it has been away for some milliseconds, writing
what it has read, the thread takes what arrives, up to about `most_bytes`, and leaves the rest to the server.
It also calls `tick` every `tick_s`, whoever reads: a server gives up on a reader that it does not hear from,
and the consumer may be away for longer than that.
"""

import threading
import time
from collections import deque
from collections.abc import Callable

__all__ = ["ReadAhead"]

_AWAY_S = 0.005


class ReadAhead:
    """What was received, in order, for one consumer; `receive` and `wait` are those of a socket.

    An error of theirs, or of `tick`, is raised once everything before it was handed over.
    """

    def __init__(
        self,
        receive: Callable[[], bytes],
        wait: Callable[[float], bool],
        *,
        most_bytes: int,
        tick: Callable[[], None] = lambda: None,
        tick_s: float = 1.0,
    ) -> None:
        self._receive, self._wait, self._tick = receive, wait, tick
        self._most_bytes, self._tick_s = most_bytes, tick_s
        self._reading = threading.Lock()  # whoever has it may receive
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._error: Exception | None = None
        self._away_since: float | None = time.monotonic()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="read ahead", daemon=True)
        self._thread.start()

    def wait(self, wait_s: float) -> bool:
        """Whether something is there, or an error, within `wait_s`."""
        self._away_since = None
        try:
            return self._is_there() or self._wait(max(0.0, wait_s))
        finally:
            self._away_since = time.monotonic()

    def take(self) -> bytes:
        """All that is there, at least a byte; waits for it."""
        self._away_since = None
        try:
            while True:
                with self._reading:
                    if self._parts:
                        return self._taken()
                    if self._error is not None:
                        raise self._error
                    if self._wait(0):
                        return self._receive()
                self._wait(self._tick_s)
        finally:
            self._away_since = time.monotonic()

    def close(self) -> None:
        """Ends the thread."""
        self._closing.set()
        self._thread.join()

    def _is_there(self) -> bool:
        return bool(self._parts) or self._error is not None

    def _taken(self) -> bytes:
        parts, self._parts, self._size = self._parts, deque(), 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # --- in the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        ticked_at = time.monotonic()
        try:
            while not self._closing.wait(_AWAY_S):
                if time.monotonic() - ticked_at >= self._tick_s:
                    ticked_at = time.monotonic()
                    self._tick()
                while self._is_away() and self._read_on():
                    pass
        except Exception as error:
            self._error = error

    def _is_away(self) -> bool:
        since = self._away_since
        return since is not None and time.monotonic() - since >= _AWAY_S

    def _read_on(self) -> bool:
        """Takes what has arrived; False if there is nothing, or no room for it."""
        with self._reading:
            if self._size >= self._most_bytes or not self._wait(0):
                return False
            data = self._receive()
            self._parts.append(data)
            self._size += len(data)
            return True
