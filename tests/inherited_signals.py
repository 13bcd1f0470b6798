"""What the processes that tests start inherit: the same however the run of the tests was started.

A shell starts what runs in the background with Ctrl-C ignored, nohup with the hang-up
ignored, and every child inherits what is ignored. A signal with a handler, however, is
back at its default in whatever a process executes.
"""

import signal
import threading
from types import FrameType

__all__ = ["give_children_defaults"]

_OFTEN_IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


def give_children_defaults() -> None:
    """Lets children have the default for signals that this process ignores, and goes on ignoring them."""
    if threading.current_thread() is not threading.main_thread():
        return
    for each in _OFTEN_IGNORED:
        if signal.getsignal(each) == signal.SIG_IGN:
            signal.signal(each, _ignored)


def _ignored(_number: int, _frame: FrameType | None) -> None:
    pass
