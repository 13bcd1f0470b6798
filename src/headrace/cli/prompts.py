"""Asking before something is lost."""

import sys

from headrace.cli.failures import UsageError
from headrace.errors import RequestError

__all__ = ["require_confirmation"]


def require_confirmation(consequence: str, name: str) -> None:
    """Returns only when the user has typed the name; raises RequestError otherwise.

    Without a terminal nobody can answer, and so the answer is no.
    """
    if not sys.stdin.isatty():
        raise UsageError(f"{consequence}; there is no terminal to confirm it, so pass --yes")
    sys.stderr.write(f"{consequence}. Type {name} to confirm: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip() != name:
        raise RequestError(f"not confirmed; nothing was deleted. Type {name} exactly, or pass --yes")
