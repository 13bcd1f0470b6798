"""What went wrong, and the exit code that says so."""

from headrace.cli.exit_codes import ExitCode
from headrace.client.failures import UnreachableError
from headrace.errors import ConfigError, HeadraceError, RequestError

__all__ = ["UsageFaultError", "exit_code"]


class UsageFaultError(RequestError):
    """The options contradict each other or cannot be read; nothing was asked of the broker."""


def exit_code(error: HeadraceError) -> ExitCode:
    """The exit code that a failure ends the command with."""
    if isinstance(error, UnreachableError):
        return ExitCode.UNREACHABLE
    return ExitCode.USAGE if isinstance(error, UsageFaultError | ConfigError) else ExitCode.FAILED
