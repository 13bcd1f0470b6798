"""`headrace serve` and `headrace entity`: an application's entities, served and looked into."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.clients import require_listener
from headrace.cli.end_of_input import stop_at_end_of_input
from headrace.cli.failures import ExitCode
from headrace.cli.identity import connection_to
from headrace.cli.options import Json, Traceback
from headrace.cli.run_to_stop import run_to_stop
from headrace.cli.show.entities import (
    render_entities,
    render_explanation,
    render_history,
    render_state,
)
from headrace.cli.terminal import Output, parse_time
from headrace.clock import SystemClock
from headrace.errors import ConfigError, RequestError
from headrace.interpreter import answer_promptly, freeze_start
from headrace.nearest import no_such

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client import Connection
    from headrace.sourcing import EntityType, History

__all__ = ["app", "serve"]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Look into entities: their state and their history."
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The Python file of the application.")]
TypeName = Annotated[str, typer.Argument(metavar="TYPE", help="Type of the entity.")]
EntityId = Annotated[str, typer.Argument(metavar="ID", help="Id of the entity.")]
OptionalBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="HEADRACE_BOOTSTRAP",
        metavar="HOST:PORT[,…]",
        help="The log. Default: that of the application if it runs here, else 127.0.0.1:9092.",
    ),
]
Sealed = Annotated[
    bool,
    typer.Option(
        "--sealed",
        help="Leave personal fields sealed; states are made as if their subjects had been forgotten.",
    ),
]
DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Data folder of the application. Default: .headrace/APP.",
    ),
]
UntilStdinCloses = Annotated[
    bool,
    typer.Option(
        "--until-stdin-closes",
        help="Stop when standard input closes, as it does when the parent process ends.",
    ),
]


def serve(
    file: File,
    bootstrap: OptionalBootstrap = None,
    data: DataFolder = None,
    rebuild_view: Annotated[
        list[str] | None,
        typer.Option(
            "--rebuild-view",
            metavar="VIEW",
            help="Rebuild this projection from its events. May be repeated.",
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Compare a rebuilt projection with the old one, and wait for `headrace views switch` if "
            "anything differs.",
        ),
    ] = False,
    until_stdin_closes: UntilStdinCloses = False,
    traceback: Traceback = False,
    as_json: Json = False,
) -> int:
    """Serve an application's entities: commands and projections."""
    from headrace.app import data_place, import_app, projection_starts, request_rebuilds
    from headrace.sourcing import EntityServer

    del traceback
    answer_promptly()
    output = Output(as_json=as_json)
    loaded = import_app(file)
    if not loaded.entity_types:
        raise ConfigError(f"application {loaded.name!r} has no entities; declare a type with app.entity")
    connection = connection_to(_bootstrap(loaded, bootstrap))
    folder, _ = data_place(None if data is None else str(data), loaded.name)
    request_rebuilds(loaded, folder, rebuild_view or (), compare=compare)

    def tell(message: str) -> None:
        output.note(message)
        if as_json:
            output.line({"message": message})

    server = EntityServer(
        connection,
        loaded.name,
        loaded.entity_types,
        loaded.reactions.values(),
        on_message=output.note,
        find_keys=loaded.find_keys,
        projections=projection_starts(loaded, folder, compare=compare, say=tell),
    )
    names = ", ".join(loaded.entity_types)
    ready = {"app": loaded.name, "entities": list(loaded.entity_types), "pid": os.getpid()}

    def announce() -> None:
        freeze_start()
        if as_json:
            output.line(ready)
        else:
            output.write(f"serving {loaded.name}: {names}; Ctrl-C stops it")

    def work() -> None:
        if server.wait_log():
            _finish_forgetting(loaded, connection, output)
            server.run(announce)

    if until_stdin_closes:
        stop_at_end_of_input(stop=server.stop)
    run_to_stop(work, server.stop, output.farewell)
    return ExitCode.DONE


def _finish_forgetting(loaded: "App", connection: "Connection", output: Output) -> None:
    """Opens the keys, if there are personal fields, and finishes what a crash interrupted."""
    from headrace.cli.commands.forget import clear_by
    from headrace.personal import resume
    from headrace.sourcing import create_entity_topics, needs_keys

    if not needs_keys(loaded.entity_types):
        return
    create_entity_topics(connection, loaded.name, loaded.entity_types.values())
    described = [each.describe() for each in loaded.entity_types.values()]
    for path in resume(loaded.personal, clear_by(connection, loaded.name, described)):
        output.note(f"finished forgetting a subject; the receipt is {path}")


# --- looking ----------------------------------------------------------------------------------------


@app.command("list")
def list_(file: File, type_: TypeName, bootstrap: OptionalBootstrap = None, as_json: Json = False) -> None:
    """List the entities of a type, and how many events each has."""
    from headrace.sourcing import list_entities

    loaded, kind, connection = _loaded(file, type_, bootstrap)
    found = list_entities(connection, loaded.name, kind.name)
    entities = [{"entity": name, "version": count} for name, count in found.items()]
    Output(as_json=as_json).document({"type": type_, "entities": entities}, render_entities)


@app.command("show")
def show(
    file: File,
    type_: TypeName,
    entity: EntityId,
    sealed: Sealed = False,
    bootstrap: OptionalBootstrap = None,
    as_json: Json = False,
) -> None:
    """Show the state of an entity now."""
    kind, history = _history(file, type_, entity, bootstrap, sealed)
    found = history.now()
    _show_state(kind, entity, found, as_json)


@app.command("at")
def at(
    file: File,
    type_: TypeName,
    entity: EntityId,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", min=0, help="After this many events.")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="TIME", help="At this time, such as 2026-11-15T21:30:00Z.")
    ] = None,
    sealed: Sealed = False,
    bootstrap: OptionalBootstrap = None,
    as_json: Json = False,
) -> None:
    """Show the state that an entity had at a version or a time."""
    if (version is None) == (time is None):
        raise ConfigError("say when: --version N, or --time TIME")
    kind, history = _history(file, type_, entity, bootstrap, sealed)
    found = history.at(
        version=version, time_ms=None if time is None else parse_time(time, SystemClock().now_ms())
    )
    _show_state(kind, entity, found, as_json)


@app.command("history")
def history(
    file: File,
    type_: TypeName,
    entity: EntityId,
    states: Annotated[
        bool, typer.Option("--states", help="With --json, also the state after each event, and what changed.")
    ] = False,
    first: Annotated[int, typer.Option("--from", metavar="N", min=1, help="List from this version on.")] = 1,
    last: Annotated[
        int | None, typer.Option("--to", metavar="N", min=1, help="List up to this version.")
    ] = None,
    sealed: Sealed = False,
    bootstrap: OptionalBootstrap = None,
    as_json: Json = False,
) -> None:
    """List the events of an entity: what happened, when, by whom and by which command."""
    kind, found = _history(file, type_, entity, bootstrap, sealed)
    listed = _with_states(kind, found) if states else (each.to_json() for each in found.events())
    events = [each for each in listed if first <= each["version"] <= (last or each["version"])]
    Output(as_json=as_json).document({"type": type_, "entity": entity, "events": events}, render_history)


@app.command("explain")
def explain(
    file: File,
    type_: TypeName,
    entity: EntityId,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", min=1, help="This version. Default: the last.")
    ] = None,
    bootstrap: OptionalBootstrap = None,
    as_json: Json = False,
) -> None:
    """Explain one version of an entity: its event, the command behind it, and what it changed."""
    from headrace.sourcing import state_changes, to_json

    kind, found = _history(file, type_, entity, bootstrap)
    before, after = to_json(kind.initial), None
    for step in found.steps():
        if after is not None:
            before = to_json(after.state)
        after = step
        if step.event.version == version:
            break
    if after is None or (version is not None and after.event.version != version):
        raise RequestError(f"{type_} {entity!r} has no version {version or 1}; see `headrace entity history`")
    state = to_json(after.state)
    Output(as_json=as_json).document(
        {
            "type": type_,
            "entity": entity,
            "event": after.event.to_json(),
            "before": before,
            "after": state,
            "changed": state_changes(before, state),
        },
        render_explanation,
    )


def _with_states(kind: "EntityType", found: "History") -> "Iterator[dict[str, Any]]":
    """Every event with the state after it, and the fields that it changed."""
    from headrace.sourcing import state_changes, to_json

    before = to_json(kind.initial)
    for step in found.steps():
        state = to_json(step.state)
        yield {**step.event.to_json(), "state": state, "changed": state_changes(before, state)}
        before = state


def _show_state(kind: "EntityType", entity: str, found: Any, as_json: bool) -> None:
    document = {
        "type": kind.name,
        "entity": entity,
        "version": found.version,
        "state": kind.state_to_json(found.state),
    }
    Output(as_json=as_json).document(document, render_state)


def _history(
    file: Path, type_: str, entity: str, bootstrap: str | None, sealed: bool = False
) -> "tuple[EntityType, History]":
    from headrace.sourcing import History

    loaded, kind, connection = _loaded(file, type_, bootstrap)
    return kind, History(connection, loaded.name, kind, entity, loaded.find_keys, sealed=sealed)


def _loaded(file: Path, type_: str, bootstrap: str | None) -> "tuple[App, EntityType, Connection]":
    from headrace.app import import_app

    loaded = import_app(file)
    if type_ not in loaded.entity_types:
        raise RequestError(f"{loaded.name}: {no_such('entity type', type_, loaded.entity_types)}")
    return loaded, loaded.entity_types[type_], _connection(loaded, bootstrap)


def _connection(loaded: "App", bootstrap: str | None) -> "Connection":
    servers = _bootstrap(loaded, bootstrap)
    require_listener(servers)
    return connection_to(servers)


def _bootstrap(loaded: "App", bootstrap: str | None) -> str:
    return bootstrap or loaded.find_log().bootstrap_servers
