"""`headrace demo`: the demonstration, which lives in `headrace.demo`."""

from typing import Annotated

import typer

__all__ = ["demo"]


def demo(
    seconds: Annotated[
        int, typer.Option("--seconds", metavar="N", min=1, help="How long to produce orders.")
    ] = 20,
) -> int:
    """Run the demonstration: a log, a producer, Spark, SQLite."""
    from headrace.demo import run  # Spark is heavy: only for whoever asks for it

    return run(seconds=seconds)
