"""Options that every command shares, and what they leave for the outer edge."""

from dataclasses import dataclass
from typing import Annotated

import typer

__all__ = ["Bootstrap", "Invocation", "Json", "TopicName", "Traceback", "Yes"]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


@dataclass(slots=True)
class Invocation:
    """What `main` must know of a command that failed: whether it was to speak JSON, and to show all."""

    as_json: bool = False
    traceback: bool = False


def _remember_json(context: typer.Context, value: bool) -> bool:
    if isinstance(context.obj, Invocation):
        context.obj.as_json = value
    return value


def _remember_traceback(context: typer.Context, value: bool) -> bool:
    if isinstance(context.obj, Invocation):
        context.obj.traceback = value
    return value


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="HEADRACE_BOOTSTRAP",
        metavar="HOST:PORT[,…]",
        help="Brokers to connect to: Headrace or Kafka.",
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", callback=_remember_json, is_eager=True, help="Print JSON instead of tables."),
]
Traceback = Annotated[
    bool,
    typer.Option(
        "--traceback",
        callback=_remember_traceback,
        is_eager=True,
        help="Show the full traceback of an error; HEADRACE_DEBUG=1 does the same.",
    ),
]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
