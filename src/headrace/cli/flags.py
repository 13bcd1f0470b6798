"""Flags made from settings, by argparse: for the commands that are processes of their own.

Unlike their siblings these do not use typer: what it imports would double a server's
start-up time and stay in its memory for good.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, get_type_hints

from headrace.cli.exit_codes import ExitCode
from headrace.cli.output import Output
from headrace.config import describe
from headrace.errors import ConfigError, HeadraceError

__all__ = ["Parser", "add_flags", "belonging", "run_command"]


def run_command(arguments: Sequence[str], work: Callable[[Output], int]) -> int:
    """What `work` returns, or the exit code of the error that it raised, which is said."""
    output = Output(as_json="--json" in arguments)
    try:
        return work(output)
    except HeadraceError as error:
        code = ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.FAILED
        output.error(str(error), exit_code=int(code))
        return code


class Parser(argparse.ArgumentParser):
    """Raises ConfigError instead of leaving the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def add_flags(parser: argparse.ArgumentParser, settings: type) -> None:
    """A flag for every setting; None means not given."""
    hints = get_type_hints(settings)
    for name, _, default, text in describe(settings):
        _add_flag(parser, name, hints[name], default, text)


def _add_flag(parser: argparse.ArgumentParser, name: str, kind: Any, default: Any, text: str) -> None:
    flag = "--" + name.replace("_", "-")
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    described = f"{text} Default: {shown}." if shown else text
    described = described.replace("%", "%%")
    if kind is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=described)
    else:
        metavar = "TEXT" if kind is str else "N"
        parser.add_argument(flag, type=kind, default=None, metavar=metavar, help=described)


def belonging(settings: type, given: argparse.Namespace) -> dict[str, Any]:
    """Of what was given, what belongs to these settings."""
    return {name: getattr(given, name) for name, *_ in describe(settings)}
