"""How the demonstration is ended from outside.

Ctrl-C closes an open shop: whoever asks `is_asked` then goes on to the proof. A second one,
one before the shop is open, SIGTERM and a terminal that closes end everything at once.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator

__all__ = ["Closing", "closing"]


class Closing:
    """What signals have asked for so far; they come to the main thread, between any two steps of it."""

    def __init__(self) -> None:
        self.is_asked = False
        self._is_open = False

    def open(self) -> None:
        """From now on the first Ctrl-C is a question."""
        self._is_open = True

    def hear(self, number: int, _: object = None) -> None:
        """A handler of signals; raises KeyboardInterrupt if it shall all end at once."""
        if number != signal.SIGINT or not self._is_open or self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True


@contextlib.contextmanager
def closing() -> Iterator[Closing]:
    """Within, signals are heard, except those that whoever started this process had it ignore."""
    heard = Closing()
    if threading.current_thread() is not threading.main_thread():
        yield heard
        return
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    kept = {each: signal.getsignal(each) for each in wanted}
    kept = {each: handler for each, handler in kept.items() if handler is not signal.SIG_IGN}
    for each in kept:
        signal.signal(each, heard.hear)
    try:
        yield heard
    finally:
        for each, handler in kept.items():
            signal.signal(each, handler)
