"""`headrace why` and `headrace affects`: from a row of a view to its records, and back."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.commands.views import DataOption, described_in, folder_of
from headrace.cli.failures import UsageError
from headrace.cli.identity import identity
from headrace.cli.options import Json, Traceback
from headrace.cli.show.trace import behind_data, render_affected, render_reason
from headrace.cli.terminal import Output
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.app import App, RunOptions

__all__ = ["affects", "why"]

DEFAULT_LIMIT = 100

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file", "-f", metavar="FILE", help="The application's file. Default: as it was run from --data."
    ),
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap", "-b", metavar="HOST:PORT[,…]", help="The log. Default: that of the data folder."
    ),
]


def why(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="Name of the view.")],
    key: Annotated[
        list[str], typer.Argument(metavar="COLUMN=VALUE…", help="The row: the columns of its key.")
    ],
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="Show at most so many records.")
    ] = DEFAULT_LIMIT,
    file: FileOption = None,
    data: DataOption = None,
    bootstrap: Bootstrap = None,
    traceback: Traceback = False,
    as_json: Json = False,
) -> None:
    """List the records behind a row of a view."""
    from headrace.app.verify import reason_of

    del traceback
    pairs = [_pair(each) for each in key]
    loaded, options = _application(file, data, bootstrap)
    reason = reason_of(loaded, options, view, pairs, limit)
    Output(as_json=as_json).document(
        {
            "view": view,
            "row": reason.row,
            "count": reason.count,
            "records": [behind_data(each) for each in reason.records],
        },
        render_reason,
    )


def affects(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the record.")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="Its partition.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="Its offset.")],
    file: FileOption = None,
    data: DataOption = None,
    bootstrap: Bootstrap = None,
    traceback: Traceback = False,
    as_json: Json = False,
) -> None:
    """List the rows of views that a record has touched."""
    from headrace.app.verify import RecordPlace, affected_rows

    del traceback
    loaded, options = _application(file, data, bootstrap)
    notes: list[str] = []
    place = RecordPlace(topic, partition, offset)
    rows = [
        {"view": each.view, "key": each.key}
        for each in affected_rows(loaded, options, place, on_message=notes.append)
    ]
    output = Output(as_json=as_json)
    output.document({"record": str(place), "rows": rows, "notes": notes}, render_affected)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is not COLUMN=VALUE, such as region=north")
    return name, value


def _application(file: Path | None, data: str | None, bootstrap: str | None) -> "tuple[App, RunOptions]":
    from headrace.app import RunOptions, load_app
    from headrace.client import Identity

    if file is None:
        found: Any = described_in(data).file
        if found is None:
            raise ConfigError("which file the application is from is not known; name it with --file")
        file = Path(found)
    loaded = load_app(file)
    folder = folder_of(data) if data is not None else Path(".headrace") / loaded.name
    if data is None and not folder.is_dir():
        folder = folder_of(None)
    who = Identity() if bootstrap is None else identity()  # a log of its own asks nobody
    return loaded, RunOptions(data=folder, bootstrap=bootstrap, identity=who)
