"""How the command ends: what scripts go by."""

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """0 done; 1 refused or failed; 2 the command line or a setting is wrong; 3 no broker answers;
    130 interrupted; 141 the reader of the output went away.
    """

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    INTERRUPTED = 130
    BROKEN_PIPE = 141
