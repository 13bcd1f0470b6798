"""Options that every command shares, and what they leave for the outer edge."""

from dataclasses import dataclass
from typing import Annotated

import typer

__all__ = ["Bootstrap", "Invocation", "Json", "TopicName", "Yes"]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


@dataclass(slots=True)
class Invocation:
    """What `main` must know of a command that failed: whether it was to speak JSON."""

    as_json: bool = False


def _remember_json(context: typer.Context, value: bool) -> bool:
    if isinstance(context.obj, Invocation):
        context.obj.as_json = value
    return value


Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="HEADRACE_BOOTSTRAP",
        metavar="HOST:PORT[,…]",
        help="Broker to ask, ours or a Kafka.",
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", callback=_remember_json, is_eager=True, help="Print JSON instead of tables."),
]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
