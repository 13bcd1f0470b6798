"""`headrace follow`: derived systems that follow topics, declared on a log and run from there."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.clients import require_listener
from headrace.cli.end_of_input import stop_at_end_of_input
from headrace.cli.failures import ExitCode
from headrace.cli.identity import connection_to
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from headrace.cli.run_to_stop import run_to_stop
from headrace.cli.terminal import Output, table_text
from headrace.client import Connection
from headrace.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from headrace.capture import CaptureHost

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Keep derived systems: run, show and verify them.",
)

Name = Annotated[str, typer.Argument(metavar="FOLLOWER", help="Name of the follower.")]
_ALIVE_MS = 30_000
_MOST_SHOWN = 20


@app.command("run")
def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="[FOLLOWER]…", help="Default: all.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="An application: its followers, and its captures."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    until_stdin_closes: Annotated[
        bool,
        typer.Option(
            "--until-stdin-closes",
            help="Stop when standard input closes, as it does when the parent process ends.",
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Run followers until stopped; those that are declared later, too."""
    from headrace.capture import CaptureHost
    from headrace.derived import FollowHost

    output, connection = Output(as_json=as_json), _connection(bootstrap)
    chosen = list(names or ())
    captures: list[str] = []
    if file is not None:
        followers, captures = _declare(file, connection)
        chosen += followers
    host = FollowHost(connection, chosen, on_message=output.note)
    capturing = CaptureHost(connection, captures, on_message=output.note) if captures else None

    def announce() -> None:
        if as_json:
            output.line({"followers": chosen, "pid": os.getpid()})
        else:
            output.write(f"running {', '.join(chosen or ['all followers'])}; Ctrl-C stops it")

    def stop() -> None:
        host.stop()
        if capturing is not None:
            capturing.stop()

    if until_stdin_closes:
        stop_at_end_of_input(stop=stop)

    def work() -> None:
        with _capturing(capturing):
            host.run(on_ready=announce)

    run_to_stop(work, stop, output.farewell)
    return ExitCode.DONE


@app.command("list")
def list_command(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List followers with their state and how far they are behind."""
    with _catalog(bootstrap) as catalog:
        found = [_described(name, entry) for name, entry in sorted(catalog.refresh().items())]
    Output(as_json=as_json).document({"followers": found}, _render_list)


@app.command("status")
def status(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show a follower: state, position, lag and counts."""
    with _catalog(bootstrap) as catalog:
        found = _described(name, _entry(catalog, name))
    Output(as_json=as_json).document(found, _render_status)


@app.command("verify")
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="[FOLLOWER]…", help="Default: all.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> int:
    """Compare derived systems with their topics, row by row, at the positions that they reflect."""
    from headrace.derived import verify_follow

    connection = _connection(bootstrap)
    with _catalog(bootstrap) as catalog:
        known = catalog.refresh()
        wanted = {name: _entry(catalog, name) for name in names} if names else known
    found = [verify_follow(each.spec, connection).to_json() for _, each in sorted(wanted.items())]
    Output(as_json=as_json).document({"followers": found}, _render_verification)
    return ExitCode.DONE if all(each["equal"] for each in found) else ExitCode.FAILED


@app.command("rebuild")
def rebuild(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Have a follower compare all its rows with the log, and correct those that differ."""
    with _catalog(bootstrap) as catalog:
        _entry(catalog, name)
        catalog.rebuild(name)
    Output(as_json=as_json).document(
        {"follower": name, "done": "told to rebuild"},
        lambda _: f"follower {name}: its rows will be compared with the log; `headrace follow status {name}`",
    )


@app.command("remove")
def remove(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Stop and forget a follower; what it has written stays."""
    with _catalog(bootstrap) as catalog:
        _entry(catalog, name)
        catalog.remove(name)
    Output(as_json=as_json).document(
        {"follower": name, "done": "removed"}, lambda _: f"follower {name}: removed; its rows stay"
    )


# --- the log --------------------------------------------------------------------------------------


def _connection(bootstrap: str) -> Connection:
    require_listener(bootstrap)
    return connection_to(bootstrap)


def _catalog(bootstrap: str) -> Any:
    from headrace.derived import FollowCatalog

    return contextlib.closing(FollowCatalog(_connection(bootstrap)))


@contextlib.contextmanager
def _capturing(host: "CaptureHost | None") -> Iterator[None]:
    """Runs these captures, if there are any, alongside what is run within."""
    if host is None:
        yield
        return
    thread = threading.Thread(target=host.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        host.stop()
        thread.join()


def _declare(file: Path, connection: Connection) -> tuple[list[str], list[str]]:
    """Declares the followers and captures of an application; their names."""
    from headrace.app import load_app
    from headrace.capture import declare_captures
    from headrace.derived import FollowCatalog

    loaded = load_app(file)
    if not loaded.followers:
        raise ConfigError(f"application {loaded.name!r} has no followers; declare one with app.follow")
    with contextlib.closing(FollowCatalog(connection)) as catalog:
        for each in loaded.followers.values():
            catalog.add(each)
    declare_captures(loaded.captures, connection)
    return list(loaded.followers), list(loaded.captures)


def _entry(catalog: Any, name: str) -> Any:
    found = catalog.refresh()
    if name not in found:
        raise RequestError(f"no follower {name!r}; the followers are: {', '.join(sorted(found)) or 'none'}")
    return found[name]


def _described(name: str, entry: Any) -> dict[str, Any]:
    said = entry.status
    alive = said is not None and time.time() * 1000 - said["at_ms"] < _ALIVE_MS
    return {
        "follower": name,
        "topic": entry.spec.topic,
        "into": {"kind": entry.spec.into.kind, "url": entry.spec.into.url, **entry.spec.into.options},
        "state": said["state"] if alive else "not running",
        "status": said,
    }


# --- shown ----------------------------------------------------------------------------------------


def _render_list(document: Mapping[str, Any]) -> str:
    rows = [
        [
            each["follower"],
            each["topic"],
            each["into"]["url"],
            each["state"],
            _behind(each["status"]),
            (each["status"] or {}).get("error") or "",
        ]
        for each in document["followers"]
    ]
    columns = ("follower", "topic", "into", "state", "behind", "last error")
    return table_text(columns, rows) if rows else "no followers"


def _behind(said: Mapping[str, Any] | None) -> str:
    if not said or said.get("behind") is None:
        return ""
    age = said.get("seconds_behind")
    return f"{said['behind']:,}" + (f", {age:.1f} s" if age is not None else "")


def _render_status(document: Mapping[str, Any]) -> str:
    said, into = document["status"] or {}, document["into"]
    lines = [f"{document['follower']}: {document['state']}", f"{document['topic']} → {into['url']}"]
    if said:
        positions = ", ".join(f"{each}:{at}" for each, at in sorted(said["positions"].items(), key=_number))
        lines.append(f"reflects: {positions or 'nothing yet'}; behind: {_behind(said) or 'unknown'}")
        lines.append(
            f"since it started: {said['upserts']:,} rows written, {said['deletes']:,} deleted, "
            f"{said['dead']:,} dead letters, {said['repairs']} repairs, {said['reconnects']} reconnects"
        )
    if said.get("error"):
        lines.append(f"last error: {said['error']}")
    return "\n".join(lines)


def _number(position: tuple[str, int]) -> int:
    return int(position[0])


def _render_verification(document: Mapping[str, Any]) -> str:
    lines = []
    for each in document["followers"]:
        if each["equal"]:
            whole = " (still being built)" if each["building"] else ""
            lines.append(f"{each['follower']}: equal, {each['rows']:,} rows{whole}")
            continue
        differ = each["differences"]
        ranges = f"{each['differing_ranges']} of {each['ranges']} ranges of keys"
        lines.append(f"{each['follower']}: {len(differ):,} of {each['rows']:,} rows differ, in {ranges}")
        lines += [f"    {one['key']}: {one['kind']}" for one in differ[:_MOST_SHOWN]]
        if len(differ) > _MOST_SHOWN:
            lines.append(f"    and {len(differ) - _MOST_SHOWN:,} more (--json)")
        lines.append(f"    `headrace follow rebuild {each['follower']}` corrects them")
    return "\n".join(lines) or "no followers"
