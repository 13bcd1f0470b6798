"""`headrace snapshot`: stops an application between two micro-batches, and copies its state."""

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.commands.applications import DataOption, File
from headrace.cli.failures import ExitCode
from headrace.cli.options import Json, Traceback
from headrace.cli.show.snapshots import left_behind_line, query_line, snapshot_data
from headrace.cli.terminal import Output

if TYPE_CHECKING:
    from headrace.app.snapshot import SnapshotQuery

__all__ = ["snapshot"]

_TIMEOUT_S = 300


def snapshot(
    file: File,
    to: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="Folder or URL that the snapshot goes to.")
    ],
    data: DataOption = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait until it has stopped."),
    ] = _TIMEOUT_S,
    traceback: Traceback = False,
    as_json: Json = False,
) -> int:
    """Stop an application, and copy its state to move it."""
    from headrace.app import RunOptions, data_place, load_app
    from headrace.app.snapshot import open_place, stopped, take_snapshot

    del traceback
    output = Output(as_json=as_json)
    app, place = load_app(file), open_place("--to", to)
    folder, url = data_place(data, app.name)
    options = RunOptions(data=folder, url=url, file=file)

    def say(text: str) -> None:
        if not as_json:
            output.write(text)

    def show(query: "SnapshotQuery") -> None:
        say(query_line(query))

    with stopped(options, timeout, say) as left_behind:
        taken = take_snapshot(app.name, options, place, left_behind=left_behind, on_query=show)
    for name, store in left_behind.items():
        say(left_behind_line(name, store))
    output.document(
        {"snapshot": to, **snapshot_data(taken)},
        lambda _: (
            f"{to} is complete. To start from it:\n"
            f"  headrace run {file} --from {to} --data PLACE --bootstrap HOST:PORT"
        ),
    )
    return ExitCode.DONE
