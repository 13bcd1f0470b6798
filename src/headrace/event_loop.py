"""The event loop of a long-running process, its log, and when it stops."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable

from headrace.stopping import stop_signals

__all__ = ["descriptor_of", "log_to_stderr", "new_loop", "stop_on_signals"]


def log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def new_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop's, where it is installed."""
    try:
        import uvloop
    except ImportError:  # no wheel for this platform: slower, but complete
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def descriptor_of(loop: asyncio.AbstractEventLoop) -> int:
    """A file descriptor that is readable when the loop has something to do; -1 if it has none."""
    ask = getattr(loop, "_get_backend_id", None)  # uvloop's, meant for its own tests
    return int(ask()) if ask is not None else -1


def stop_on_signals(stop: Callable[[], None], *, until_stdin_closes: bool = False) -> None:
    """Calls `stop` in the running loop on Ctrl-C, SIGTERM and SIGHUP, and optionally at the end of input."""
    loop = asyncio.get_running_loop()
    for signum in stop_signals():
        loop.add_signal_handler(signum, stop)
    if until_stdin_closes:
        _stop_at_end_of_input(loop, stop)


def _stop_at_end_of_input(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    descriptor = sys.stdin.fileno()

    def on_input() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stop()

    loop.add_reader(descriptor, on_input)
