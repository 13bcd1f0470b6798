"""Flags made from settings, by argparse: for the commands that are processes of their own.

Unlike their siblings these do not use typer: what it imports would double a server's
start-up time and stay in its memory for good.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, get_type_hints

from headrace.cli.failures import ExitCode, print_traceback
from headrace.cli.terminal import Output
from headrace.config import describe
from headrace.errors import ConfigError, HeadraceError

__all__ = ["FlagGroups", "Parser", "add_flags", "run_command", "settings_of", "title_of"]


def run_command(arguments: Sequence[str], work: Callable[[Output], int]) -> int:
    """What `work` returns, or the exit code of the error that it raised, which is said."""
    output = Output(as_json="--json" in arguments)
    try:
        return work(output)
    except HeadraceError as error:
        print_traceback(error)
        code = ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.FAILED
        output.error(str(error), exit_code=int(code))
        return code


class Parser(argparse.ArgumentParser):
    """Raises ConfigError instead of leaving the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see `{self.prog} --help`")


# Titles of groups of flags, each with the beginnings of the names that belong there.
FlagGroups = Mapping[str, tuple[str, ...]]


def add_flags(parser: argparse.ArgumentParser, settings: type, groups: FlagGroups | None = None) -> None:
    """A flag for every setting, under the title where its name belongs; None means not given."""
    hints = get_type_hints(settings)
    titled = {title: parser.add_argument_group(title) for title in groups or {}}
    for name, _, default, text in describe(settings):
        place = title_of(name, groups or {})
        _add_flag(parser if place is None else titled[place], name, hints[name], default, text)


def title_of(name: str, groups: FlagGroups) -> str | None:
    """The title that a setting belongs under: that of the longest beginning of its name."""
    fitting = [
        (len(beginning), title)
        for title, beginnings in groups.items()
        for beginning in beginnings
        if name.startswith(beginning)
    ]
    return max(fitting)[1] if fitting else None


def _add_flag(parser: argparse._ActionsContainer, name: str, kind: Any, default: Any, text: str) -> None:
    flag = "--" + name.replace("_", "-")
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    described = f"{text} Default: {shown}." if shown else text
    described = described.replace("%", "%%")
    if kind is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=described)
    else:
        metavar = "TEXT" if kind is str else "N"
        parser.add_argument(flag, type=kind, default=None, metavar=metavar, help=described)


def settings_of(settings: type, given: argparse.Namespace) -> dict[str, Any]:
    """Of what was given, what belongs to these settings."""
    return {name: getattr(given, name) for name, *_ in describe(settings)}
