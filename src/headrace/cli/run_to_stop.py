"""Running until a signal asks for an orderly end, which must not wait forever for others."""

import os
import sys
import threading
import time
from collections.abc import Callable

from headrace.cli.end_of_input import GRACE_S
from headrace.stopping import hearing

__all__ = ["run_to_stop"]

_LOOK_S = 0.2


def run_to_stop(
    work: Callable[[], None], stop: Callable[[], None], farewell: Callable[[], None], grace_s: float = GRACE_S
) -> None:
    """Runs `work` until it returns, then says farewell; raises what it raises. A signal calls `stop`.

    Work that has not returned `grace_s` after the signal waits for a log or a database that does not
    answer: this process then ends without it, with exit code 0. Only work that may be killed at any
    point is run like this.

    `work` has a thread of its own, because signals are handled between two calls of Python's, and
    those of the client library are long.
    """
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="work", daemon=True)
    asked_at: list[float] = []

    def ask(*_: object) -> None:
        asked_at.append(time.monotonic())
        stop()

    with hearing(ask):
        thread.start()
        while thread.is_alive() and not (asked_at and time.monotonic() - asked_at[0] > grace_s):
            thread.join(_LOOK_S)
    if failures:
        raise failures[0]
    farewell()
    if thread.is_alive():
        sys.stdout.flush()
        os._exit(0)
