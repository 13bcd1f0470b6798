"""`headrace demo`: the demonstration, which lives in `headrace.demo`."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["demo"]


def demo(
    seconds: Annotated[
        float,
        typer.Option("--seconds", metavar="N", min=1, help="How long it lives after its first result."),
    ] = 20,
    rate: Annotated[int, typer.Option("--rate", metavar="N", min=1, help="Events a second.")] = 2000,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="DIR", help="An empty folder to keep everything in; else a temporary one."
        ),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", "-b", metavar="HOST:PORT", help="Use this log instead of starting one."),
    ] = None,
) -> int:
    """Run the demonstration: a small shop that lives, and is proved at the end."""
    from headrace.demo import run  # Spark is heavy: only for whoever asks for it

    return run(seconds, rate=rate, data=data, bootstrap=bootstrap)
