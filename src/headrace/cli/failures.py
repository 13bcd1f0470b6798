"""How a command fails: its exit code, wrong options, and the traceback on request.

Imports no client: servers fail like this too, and start without one.
"""

import os
import traceback
from enum import IntEnum

from headrace.errors import RequestError

__all__ = ["DEBUG_VARIABLE", "ExitCode", "UsageError", "print_traceback"]

DEBUG_VARIABLE = "HEADRACE_DEBUG"


class ExitCode(IntEnum):
    """0 done; 1 refused or failed; 2 the command line or a setting is wrong; 3 no broker answers;
    4 a newer run took over; 130 interrupted; 141 the reader of the output went away.
    """

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    FENCED = 4
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class UsageError(RequestError):
    """The options contradict each other or cannot be read; nothing was asked of the broker."""


def print_traceback(error: BaseException, *, asked: bool = False) -> None:
    """Writes the error and its causes to stderr, if `asked` or where HEADRACE_DEBUG is set, but not to 0."""
    if asked or os.environ.get(DEBUG_VARIABLE, "0") not in ("", "0"):
        traceback.print_exception(error)
