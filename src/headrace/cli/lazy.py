"""Commands whose options come from a room that is slow to import.

They are listed by a stand-in that knows only name and summary; the real command
is made when it is invoked, so that the others do not pay for it.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from typer.core import TyperGroup

__all__ = ["LAZY", "LazyGroup", "load_command"]

# Name of the command: module whose `make_command()` returns it.
LAZY = {"broker": "headrace.cli.broker"}


class LazyGroup(TyperGroup):
    """A group that replaces the stand-ins of LAZY by the real commands on invocation."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name in LAZY else command, rest


def load_command(name: str) -> Any:
    """The real command behind a stand-in."""
    make: Callable[[], Any] = import_module(LAZY[name]).make_command
    return make()
