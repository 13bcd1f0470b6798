"""Ending with the process that started us: its end closes our standard input."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

__all__ = ["stop_at_end_of_input"]

GRACE_S = 20
_GAVE_UP = 1


def stop_at_end_of_input(grace_s: float = GRACE_S, stop: Callable[[], None] | None = None) -> None:
    """Stops this process once its input closes, by `stop` or as SIGTERM does, and for good after the grace.

    The process that started it may be gone, and with it the log, for which an orderly end would wait.
    """
    threading.Thread(target=_watch, args=(grace_s, stop), name="end of input", daemon=True).start()


def _watch(grace_s: float, stop: Callable[[], None] | None) -> None:
    with contextlib.suppress(OSError):  # input that cannot be read is as good as closed
        while os.read(sys.stdin.fileno(), 4096):
            pass
    if stop is not None:
        stop()
    else:
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_s)
    os._exit(_GAVE_UP)
