"""The `headrace` command: its tree of commands and its outer edge.

Every expected failure ends here as one line on stderr and a documented exit
code; a traceback means a defect. Heavy rooms (broker, demo) are imported only
by the command that needs them, so that the others start quickly.
"""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from headrace import __version__
from headrace.cli.commands import (
    access,
    applications,
    capture,
    deadletters,
    demo,
    entities,
    follow,
    forget,
    groups,
    hooks,
    produce,
    queues,
    snapshot,
    tail,
    topics,
    trace,
    views,
)
from headrace.cli.failures import ExitCode, UsageError, print_traceback
from headrace.cli.identity import add_identity_options
from headrace.cli.options import Invocation
from headrace.cli.terminal import Output, ReaderGoneError
from headrace.client.connect import UnreachableError
from headrace.errors import ConfigError, FencedError, HeadraceError

__all__ = ["app", "main", "run"]

# Other names of commands, for the first word of a command line.
ALIASES = {"consume": "tail"}

# Typer keeps its parser to itself and exports only this leaf of the parser's errors.
ParserError: Any = typer.BadParameter.__base__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes and type columns leave too little of 80 columns for the words
    help="Headrace: a durable log that speaks Kafka's protocol, and the tools around it.",
    epilog="Commands connect to --bootstrap, or HEADRACE_BOOTSTRAP, or 127.0.0.1:9092.",
)


@app.command(
    "broker",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
def broker(context: typer.Context) -> int:
    """Run a broker: the log, served over Kafka's protocol."""
    from headrace.cli.servers.broker import main as serve

    return serve(context.args)


@app.command(
    "console",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
)
def console(context: typer.Context) -> int:
    """Serve the console: an HTTP API and a web page."""
    from headrace.cli.servers.console import main as serve

    return serve(context.args)


app.command("demo")(demo.demo)
app.command("run")(applications.run)
app.command("plan")(applications.plan)
app.command("state")(applications.state)
app.command("snapshot")(snapshot.snapshot)
app.command("verify")(applications.verify)
app.command("why")(trace.why)
app.command("affects")(trace.affects)
app.command("produce")(produce.produce)
app.command("tail")(tail.tail)
app.add_typer(views.app, name="views")
app.add_typer(topics.app, name="topics")
app.add_typer(groups.app, name="groups")
app.add_typer(queues.app, name="queues")
app.add_typer(deadletters.app, name="deadletters")
app.add_typer(hooks.app, name="hooks")
app.command("deliver")(hooks.deliver)
app.command("serve")(entities.serve)
app.add_typer(entities.app, name="entity")
app.command("forget")(forget.forget_subject)
app.add_typer(capture.app, name="capture")
app.add_typer(follow.app, name="follow")
app.add_typer(access.users, name="users")
app.add_typer(access.acls, name="acls")


def _version(value: bool) -> None:
    if value:
        Output(as_json=False).write(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """The console script: runs the command line and leaves with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code; never raises for an expected failure."""
    invocation = Invocation()
    try:
        return _invoke(arguments, invocation)
    except HeadraceError as error:
        print_traceback(error, asked=invocation.traceback)
        return _fail(invocation, str(error), _exit_code(error))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except ReaderGoneError:
        return _close_pipe()
    except OSError as error:
        return _fail(
            invocation, f"{error.strerror or error}: {error.filename or 'input or output'}", ExitCode.FAILED
        )


def _invoke(arguments: Sequence[str], invocation: Invocation) -> int:
    command: Any = typer.main.get_command(app)
    add_identity_options(command)
    words = [ALIASES.get(word, word) if place == 0 else word for place, word in enumerate(arguments)]
    try:
        result = command.main(words, prog_name="headrace", standalone_mode=False, obj=invocation)
    except ParserError as error:
        return _usage(error, invocation)
    except typer.Abort:
        return ExitCode.INTERRUPTED
    return result if isinstance(result, int) else ExitCode.DONE


def _usage(error: Any, invocation: Invocation) -> int:
    """One line that says what is wrong; a bare `headrace` or `headrace topics` gets the help instead."""
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(error.ctx.get_help() + "\n")
        return ExitCode.USAGE
    where = error.ctx.command_path if error.ctx else "headrace"
    message = error.format_message().rstrip(".").replace("\n", " ")
    join = " See" if message.endswith("?") else "; see"
    return _fail(invocation, f"{message}{join} `{where} --help`", ExitCode.USAGE)


def _fail(invocation: Invocation, message: str, code: ExitCode) -> int:
    Output(as_json=invocation.as_json).error(message, exit_code=int(code))
    return code


def _exit_code(error: HeadraceError) -> ExitCode:
    """The exit code that a failure ends the command with."""
    if isinstance(error, UnreachableError):
        return ExitCode.UNREACHABLE
    if isinstance(error, FencedError):
        return ExitCode.FENCED
    return ExitCode.USAGE if isinstance(error, UsageError | ConfigError) else ExitCode.FAILED


def _close_pipe() -> int:
    # The interpreter flushes stdout once more when it leaves, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.BROKEN_PIPE
