"""`headrace views`: what an application's views show, and how they change.

Reads the stores themselves, by the description in the application's data folder: neither
its own file nor Spark is needed, and it may run or not.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.failures import UsageError
from headrace.cli.identity import connection_to
from headrace.cli.options import Json
from headrace.cli.records.follow import until_interrupted
from headrace.cli.show.views import (
    ChangePrinter,
    described_views,
    render_comparison,
    render_rows,
    render_views,
)
from headrace.cli.terminal import Output
from headrace.errors import ConfigError, RequestError, RetriableError
from headrace.nearest import no_such

if TYPE_CHECKING:
    from headrace.app.status import AppDescription, ViewDescription
    from headrace.views import Condition, Order, Snapshot, ViewChange, ViewStore

__all__ = ["DataOption", "app", "described_in", "folder_of"]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="List, show, follow and compare views.")

DEFAULT_LIMIT = 100
POLL_S = 0.2
# Stores that keep rows, and no changes for followers.
_WITHOUT_CHANGES = ("parquet:", "topic:")
_APPLICATIONS = Path(".headrace")

DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR|URL",
        help="Data folder or URL of the application. Default: the only one in .headrace.",
    ),
]
OptionalBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT[,…]",
        help="The log, for views stored in topics. Default: the application's.",
    ),
]
ViewName = Annotated[str, typer.Argument(metavar="VIEW", help="Name of the view.")]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        "-w",
        metavar="COLUMN[.OP]=VALUE",
        help="Only matching rows, such as region=north or revenue.ge=10; can be repeated.",
    ),
]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV instead of tables.")]


@app.command("list")
def list_views(data: DataOption = None, bootstrap: OptionalBootstrap = None, as_json: Json = False) -> None:
    """List the views of an application."""
    del bootstrap  # taken as by every command on a log; a list needs none
    described = described_in(data)
    listed = {"app": described.app, "views": described_views(described)}
    Output(as_json=as_json).document(listed, render_views)


@app.command("show")
def show(
    view: ViewName,
    where: WhereOption = None,
    order: Annotated[
        str | None,
        typer.Option(
            "--order",
            metavar="COLUMNS",
            help="Sort by these columns, descending after a minus: -revenue,region.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=0, help="Maximum rows; 0 means all.")
    ] = DEFAULT_LIMIT,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="WHEN",
            help="Show a table with a history as it was: 2026-01-31T12:00:00Z, or 0:1200,1:1187.",
        ),
    ] = None,
    personal: Annotated[
        bool, typer.Option("--personal", help="Open personal values; those of forgotten subjects are empty.")
    ] = False,
    as_csv: Csv = False,
    data: DataOption = None,
    bootstrap: OptionalBootstrap = None,
    as_json: Json = False,
) -> None:
    """Show the rows of a view."""
    from headrace.views import parse_order, rows_to_csv, rows_to_json

    output = _output(as_json, as_csv)
    with _opened(data, bootstrap, view) as (store, found):
        one_more = limit + 1 if limit else None  # to know whether there are more
        conditions = _conditions(found, where)
        ordered = parse_order(order)
        if as_of is None:
            snapshot = store.snapshot(view, where=conditions, order=ordered, limit=one_more)
        else:
            snapshot = _as_it_was(store, found, as_of, conditions, ordered, one_more)
    rows = snapshot.rows.slice(0, limit) if limit else snapshot.rows
    shown = [] if as_csv else rows_to_json(rows)
    if personal:
        shown = _open_personal(shown, folder_of(data), as_csv)
    if as_csv:
        output.write_bytes(rows_to_csv(rows).encode())
    else:
        reflected = {"batch_id": snapshot.reflected.batch_id, "offsets": snapshot.reflected.offsets}
        output.document(
            {"view": view, "rows": shown, "reflected": reflected},
            lambda _: render_rows(rows.column_names, shown),
        )
    if rows.num_rows < snapshot.rows.num_rows:
        output.note(f"only the first {limit:,} rows; use --limit for more, --limit 0 for all")


@app.command("follow")
def follow(
    view: ViewName,
    where: WhereOption = None,
    as_csv: Csv = False,
    data: DataOption = None,
    bootstrap: OptionalBootstrap = None,
    as_json: Json = False,
) -> None:
    """Show changes of a view as they happen, until Ctrl-C."""
    output = _output(as_json, as_csv)
    with until_interrupted(output, has_end=False), _opened(data, bootstrap, view) as (store, found):
        printer = ChangePrinter(output, store.schema(view), _conditions(found, where), as_csv=as_csv)
        compared = found.store is not None and found.store.url.startswith(_WITHOUT_CHANGES)
        for change in _compared(store, view) if compared else _changes(store, view, output):
            printer.show(change)


@app.command("compare")
def compare(
    view: ViewName, data: DataOption = None, bootstrap: OptionalBootstrap = None, as_json: Json = False
) -> None:
    """Compare a rebuilt view with the one that is shown."""
    from headrace.views.rebuilt import Rebuilds

    del bootstrap

    found = Rebuilds(folder_of(data)).compared(view)
    Output(as_json=as_json).document(found.to_json(), render_comparison)


@app.command("switch")
def switch(
    view: ViewName, data: DataOption = None, bootstrap: OptionalBootstrap = None, as_json: Json = False
) -> None:
    """Show a rebuilt view in place of the old one."""
    from headrace.views.rebuilt import Rebuilds

    del bootstrap

    Rebuilds(folder_of(data)).approve(view)
    Output(as_json=as_json).document(
        {"view": view, "approved": True},
        lambda _: f"{view}: the rebuilt rows are shown as soon as the process that keeps them notices",
    )


# --- thin -----------------------------------------------------------------------------------------


def _open_personal(rows: list[dict[str, Any]], folder: Path, as_csv: bool) -> list[dict[str, Any]]:
    """The rows with sealed values opened."""
    from headrace.personal import key_place, open_keys

    if as_csv:
        raise UsageError("--personal and --csv exclude each other; take --json")
    keys = open_keys(key_place(folder))
    return [keys.open_all(each) for each in rows]


def _output(as_json: bool, as_csv: bool) -> Output:
    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other; give only one")
    return Output(as_json=as_json)


def described_in(data: str | None) -> "AppDescription":
    """The application that runs or ran last on a folder, or at a URL."""
    from headrace.app.status import FollowedFolder, read_description
    from headrace.objects import is_url

    if data is not None and is_url(data):
        with contextlib.closing(FollowedFolder(data)) as followed:
            described = read_description(followed.path)
            assert described is not None
            return described
    folder = folder_of(data)
    found = read_description(folder)
    if found is None:
        raise ConfigError(f"there is no application in {folder}; start one with `headrace run --data`")
    return found


def folder_of(data: str | None) -> Path:
    """The given folder, or that of the one application that was run from here."""
    from headrace.objects import is_url

    if data is not None and is_url(data):
        raise UsageError(f"{data} is a URL, and this needs the data folder itself; give that as --data")
    if data is not None:
        return Path(data)
    found = sorted(each.parent for each in _APPLICATIONS.glob("*/app.json"))
    if len(found) == 1:
        return found[0]
    there = f"there is {', '.join(map(str, found))}" if found else f"there is none in {_APPLICATIONS}/"
    raise UsageError(f"name the application's data folder with --data DIR; {there}")


@contextlib.contextmanager
def _opened(
    data: str | None, bootstrap: str | None, view: str
) -> "Iterator[tuple[ViewStore, ViewDescription]]":
    from headrace.views import open_store

    described = described_in(data)
    views = {each.name: each for each in described.views}
    if view not in views:
        raise RequestError(f"{described.app}: " + no_such("view", view, views))
    found = views[view]
    if found.store is None:
        raise RequestError(f"{view} is a topic, not a view; show it with `headrace tail {found.topic}`")
    connection = connection_to(bootstrap or described.bootstrap)
    with contextlib.closing(open_store(found.store.openable(os.environ), connection=connection)) as store:
        if view not in store.views():
            raise RequestError(f"view {view!r} has not been built yet; start its application")
        yield store, found


def _as_it_was(
    store: "ViewStore",
    view: "ViewDescription",
    as_of: str,
    where: "list[Condition]",
    order: "list[Order]",
    limit: int | None,
) -> "Snapshot":
    from headrace.views import parse_as_of, read_as_of

    if view.history_us is None:
        raise UsageError(f'{view.name} has no history; declare its table with serve=True, history="7 days"')
    moment = parse_as_of(as_of)
    return read_as_of(
        store, view.name, moment, keep_us=view.history_us, where=where, order=order, limit=limit
    )


def _conditions(view: "ViewDescription", given: Sequence[str] | None) -> "list[Condition]":
    from headrace.views import parse_condition

    found = []
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--where {text!r} is not COLUMN=VALUE or COLUMN.OP=VALUE")
        found.append(parse_condition(list(view.columns), name, value))
    return found


def _changes(store: "ViewStore", view: str, output: Output) -> "Iterator[ViewChange]":
    """New changes, for ever; where some are lost to a rebuild or to retention, that is said."""
    since = store.last_sequence(view)
    while True:
        try:
            for change in store.changes(view, since):
                yield change
                since = change.sequence
        except RequestError as error:
            since = store.last_sequence(view)
            output.note(f"{error}; continuing with new changes")
        except RetriableError as error:
            output.note(str(error))
        time.sleep(POLL_S)


def _compared(store: "ViewStore", view: str) -> "Iterator[ViewChange]":
    """The same for a store that keeps no changes: what differs from the rows of the last look."""
    from headrace.cli.show.views import differences
    from headrace.views import rows_to_json

    key = store.schema(view).key
    seen: dict[Any, dict[str, Any]] | None = None
    sequence = 0
    while True:
        snapshot = store.snapshot(view)
        rows = {tuple(str(row[name]) for name in key): row for row in rows_to_json(snapshot.rows)}
        if seen is not None and rows != seen:
            for change in differences(seen, rows, key, snapshot.reflected.batch_id, sequence):
                sequence = change.sequence
                yield change
        seen = rows
        time.sleep(POLL_S)
