"""`headrace demo`: the demonstration, which lives in `headrace.demo`."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.identity import connection_to
from headrace.cli.options import Json

__all__ = ["demo"]


def demo(
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            metavar="N",
            min=1,
            help="Stop the traffic N seconds after the first result, and verify every view. "
            "Ctrl-C does the same at any time; a second Ctrl-C exits at once.",
        ),
    ] = None,
    rate: Annotated[int, typer.Option("--rate", metavar="N", min=1, help="Events per second.")] = 200,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            help="Keep everything in this folder and continue there next time. Default: a temporary one.",
        ),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="Use this log instead of starting one."),
    ] = None,
    postgres: Annotated[
        bool,
        typer.Option(
            "--postgres", help="Keep customers in a PostgreSQL of its own, and not in a SQLite file."
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Run the demo: a small shop, verified at the end."""
    from headrace.demo import run  # what it needs is heavy: only for this command

    connection = None if bootstrap is None else connection_to(bootstrap)
    return run(seconds, rate=rate, data=data, connection=connection, postgres=postgres, as_json=as_json)
