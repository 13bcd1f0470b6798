"""Reads a stream of a server ahead, in a thread of its own, while its consumer is busy with something else.

The thread holds at most about `most_bytes` and then leaves the rest to the server. A server may send each row
by itself: little is received no more than once in a millisecond. Whatever the thread waits for, it
calls `tick` every `tick_s`: a server gives up on a reader that it does not hear from, and the consumer may be
busy for longer than that.
"""

import threading
import time
from collections import deque
from collections.abc import Callable

__all__ = ["ReadAhead"]

_LOOK_S = 0.2
_LITTLE_BYTES, _GATHER_S = 64 << 10, 0.001


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
        tick_s: float = _LOOK_S,
    ) -> None:
        self._receive, self._wait, self._tick = receive, wait, tick
        self._most_bytes = most_bytes
        self._look_s = min(_LOOK_S, tick_s)
        self._changed = threading.Condition()
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._error: Exception | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="read ahead", daemon=True)
        self._thread.start()

    def wait(self, wait_s: float) -> bool:
        """Whether something is there, or an error, within `wait_s`."""
        with self._changed:
            return self._changed.wait_for(self._is_there, max(0.0, wait_s))

    def take(self) -> bytes:
        """All that is there, at least a byte; waits for it."""
        with self._changed:
            self._changed.wait_for(self._is_there)
            if not self._parts:
                assert self._error is not None
                raise self._error
            parts, self._parts, self._size = self._parts, deque(), 0
            self._changed.notify()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Ends the thread, which the closed connection lets go."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _is_there(self) -> bool:
        return bool(self._parts) or self._error is not None

    def _run(self) -> None:
        try:
            while not self._closing:
                self._tick()
                if self._has_room() and self._wait(self._look_s):
                    data = self._receive()
                    self._put(data)
                    if len(data) < _LITTLE_BYTES:
                        time.sleep(_GATHER_S)
        except Exception as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _has_room(self) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: self._closing or self._size < self._most_bytes, self._look_s
            )

    def _put(self, data: bytes) -> None:
        with self._changed:
            self._parts.append(data)
            self._size += len(data)
            self._changed.notify_all()
