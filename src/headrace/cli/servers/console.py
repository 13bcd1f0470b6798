"""`headrace console`: an HTTP API and a page, in this process; and the tokens of its users."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from headrace.cli.failures import ExitCode
from headrace.cli.passwords import complete_identity
from headrace.cli.servers.flags import Parser, add_flags, run_command, settings_of
from headrace.cli.terminal import Output, table_text
from headrace.client.connect import Identity
from headrace.config import load
from headrace.console import ConsoleSettings, Listening, add_token, read_users, remove_token, run

__all__ = ["main", "parser", "token_parser"]

SUMMARY = "Serve the console: an HTTP API and a web page for topics, groups, views and pipelines."
PREFIX = "CONSOLE_"
DEFAULT_USERS = "headrace-users.json"
ROLES = ("reader", "writer", "admin")


def main(arguments: Sequence[str]) -> int:
    """Serves until it is told to stop, or changes tokens; the exit code."""

    def work(output: Output) -> int:
        if arguments[:1] == ["token"]:
            return _change_tokens(token_parser().parse_args(arguments[1:]), output)
        return _serve(parser().parse_args(arguments), output)

    return run_command(arguments, work)


def parser() -> argparse.ArgumentParser:
    """A flag for every setting; None means not given."""
    made = Parser(
        "headrace console",
        description=SUMMARY + " Stops cleanly on Ctrl-C or SIGTERM.",
        epilog="`headrace console token` manages the tokens of its users.",
        allow_abbrev=False,
    )
    add_flags(made, ConsoleSettings)
    add_flags(made, Identity)
    made.add_argument("--json", action="store_true", help="Print the address, and errors, as JSON.")
    return made


def token_parser() -> argparse.ArgumentParser:
    """`headrace console token add | list | remove`."""
    made = Parser("headrace console token", description="Manage the tokens of a console's users.")
    actions = made.add_subparsers(dest="action", required=True, metavar="add | list | remove")
    for name, help_ in (
        ("add", "Create a token and print it; it cannot be shown again."),
        ("list", "List the users that have a token, and their roles."),
        ("remove", "Remove a token; it stops working within a second."),
    ):
        action = actions.add_parser(name, help=help_, description=help_)
        action.add_argument(
            "--users",
            default=os.environ.get(f"HEADRACE_{PREFIX}USERS", DEFAULT_USERS),
            metavar="FILE",
            help=f"Token file. Default: {DEFAULT_USERS}.",
        )
        action.add_argument("--json", action="store_true", help="Print JSON.")
        if name != "list":
            action.add_argument("name", metavar="NAME", help="Name of the user.")
        if name == "add":
            action.add_argument("--role", required=True, choices=ROLES, help="Role of the user.")
    return made


def _serve(given: argparse.Namespace, output: Output) -> int:
    wanted = settings_of(ConsoleSettings, given)
    wanted["bootstrap"] = wanted["bootstrap"] or os.environ.get("HEADRACE_BOOTSTRAP")
    settings = load(ConsoleSettings, prefix=PREFIX, **wanted)
    identity = complete_identity(load(Identity, **settings_of(Identity, given)))
    code = run(settings, identity, on_listening=lambda listening: _announce(output, listening))
    output.farewell()
    return code


def _announce(output: Output, listening: Listening) -> None:
    """One line once browsers can connect: the sign that scripts wait for."""
    if output.as_json:
        output.line(
            {"host": listening.host, "port": listening.port, "url": listening.url, "pid": os.getpid()}
        )
    else:
        output.write(f"console on {listening.url}, pid {os.getpid()}")


def _change_tokens(given: argparse.Namespace, output: Output) -> int:
    path = Path(given.users)
    if given.action == "add":
        token = add_token(path, given.name, given.role)
        output.document(
            {"name": given.name, "role": given.role, "token": token, "users": str(path)},
            lambda _: (
                f"{token}\n\nsave it now: only its hash is in {path}. Start the console with --users {path}"
            ),
        )
    elif given.action == "remove":
        remove_token(path, given.name)
        output.document({"name": given.name, "removed": True}, lambda _: f"removed the token of {given.name}")
    else:
        known = [
            {"name": each.name, "role": each.role, "created_at": each.created_at} for each in read_users(path)
        ]
        output.document(
            {"tokens": known},
            lambda _: table_text(("name", "role", "created"), (list(each.values()) for each in known)),
        )
    return ExitCode.DONE
