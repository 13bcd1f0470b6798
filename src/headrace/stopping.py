"""How a command that waits is told to stop: Ctrl-C, SIGTERM, or the end of its terminal.

Handlers are set explicitly, for a process inherits from its parent that SIGINT is
ignored: a shell does so for what it puts in the background, and so do runners of CI. Only
SIGHUP stays ignored where it is: that is what nohup is for.

A supervisor of the system (systemd) sends SIGTERM to a process and to its children alike.
Children that have to outlive their parent's orderly end leave signals to the parent:
it started them with STOPPED_BY_INPUT in their environment, and ends them by their input.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

__all__ = [
    "STOPPED_BY_INPUT",
    "Stopping",
    "hearing",
    "held_back",
    "leave_signals_to_parent",
    "stop_signals",
]

STOPPED_BY_INPUT = "HEADRACE_STOPPED_BY_INPUT"

Handler = Callable[[int, Any], Any]

# `timeout` and supervisors send a signal to a process and to its group: that is one wish, not two.
SAME_WISH_S = 1.0


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that ask this process to stop; none if its parent does that by its input."""
    if os.environ.get(STOPPED_BY_INPUT):
        return ()
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return (signal.SIGINT, signal.SIGTERM)
    return (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def leave_signals_to_parent() -> None:
    """Ignores the signals from here on, in a process whose parent ends it by its input; nothing in others."""
    if os.environ.get(STOPPED_BY_INPUT):
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)


@contextlib.contextmanager
def hearing(handler: Handler) -> Iterator[None]:
    """Within, the handler gets these signals; outside the main thread nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {each: signal.getsignal(each) for each in stop_signals()}
    for each in kept:
        signal.signal(each, handler)
    try:
        yield
    finally:
        for each, before in kept.items():
            signal.signal(each, before)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Within, signals that a handler was set for wait, and so do the handlers, should others replace them.

    For what must not be cut off in the middle. A signal that came is handled at the end; a
    second Ctrl-C, as `Stopping` counts them, at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    now_set = {each: signal.getsignal(each) for each in stop_signals()}
    kept: dict[signal.Signals, Any] = {each: handler for each, handler in now_set.items() if _is_own(handler)}
    came: list[tuple[int, float]] = []

    def keep(number: int, frame: Any) -> None:
        handler = kept[signal.Signals(number)]
        if came and number == signal.SIGINT and time.monotonic() - came[0][1] >= SAME_WISH_S:
            handler(number, frame)
        came.append((number, time.monotonic()))

    for each in kept:
        signal.signal(each, keep)
    try:
        yield
    finally:
        for each, handler in kept.items():
            signal.signal(each, handler)
    for number, _ in came:
        signal.raise_signal(number)


def _is_own(handler: object) -> bool:
    return callable(handler) and handler is not signal.default_int_handler


class Stopping:
    """Decides what a signal means: the first asks for an orderly end, a second Ctrl-C for one at once.

    The second counts from one second after the first; other signals are not counted twice.
    Until `on_stop` is set, the first raises KeyboardInterrupt where the main thread is.
    """

    def __init__(self, end_at_once: Callable[[], None], now: Callable[[], float] = time.monotonic) -> None:
        self.on_stop: Callable[[], None] | None = None
        self.asked_at: float | None = None
        self._end_at_once = end_at_once
        self._now = now

    def hear(self, number: int, _: object = None) -> None:
        """A handler of signals."""
        if self.asked_at is None:
            self.asked_at = self._now()
            if self.on_stop is None:
                raise KeyboardInterrupt
            self.on_stop()
        elif number == signal.SIGINT and self._now() - self.asked_at >= SAME_WISH_S:
            self._end_at_once()
