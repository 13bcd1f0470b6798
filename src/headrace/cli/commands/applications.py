"""`headrace run`, `plan`, `state` and `verify`: an application file, running, drawn, measured and proved."""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from headrace.cli.end_of_input import stop_at_end_of_input
from headrace.cli.failures import ExitCode, UsageError
from headrace.cli.identity import identity
from headrace.cli.options import Json, Traceback
from headrace.cli.show.applications import (
    batch_line,
    render_state,
    render_verdicts,
    state_data,
    verdict_data,
    verdict_line,
)
from headrace.cli.terminal import Output
from headrace.errors import ConfigError
from headrace.stopping import Stopping, hearing

if TYPE_CHECKING:
    from headrace.app import App, RunOptions
    from headrace.app.status import BatchReport
    from headrace.client import Identity

__all__ = ["plan", "run", "state", "verify"]

File = Annotated[Path, typer.Argument(metavar="FILE", help="The Python file of the application.")]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR|URL",
        help="Folder for the log, checkpoints and views, or URL for checkpoints. Default: .headrace/NAME.",
    ),
]
OptionalBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT[,…]",
        help="Use this log (Headrace or Kafka) instead of an embedded one.",
    ),
]
LogAddress = Annotated[
    str | None,
    typer.Option(
        "--log",
        metavar="HOST:PORT",
        help="Where the embedded log listens. Default: the same port as last time, or a free one.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Use this Spark master instead of a local Spark."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        "--conf",
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.executor.memory=2g. May be repeated.",
    ),
]
Cores = Annotated[int, typer.Option("--cores", metavar="N", min=1, help="Cores for the local Spark.")]
UntilStdinCloses = Annotated[
    bool,
    typer.Option(
        "--until-stdin-closes",
        help="Stop when standard input closes, as it does when the parent process ends.",
    ),
]
Http = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        help="Where the console listens; port 0 picks a free port."
        " Default: 127.0.0.1:8080, or a free port if that is taken.",
    ),
]
NoHttp = Annotated[bool, typer.Option("--no-http", help="Run without the console.")]
MaxRecordsPerBatch = Annotated[
    int,
    typer.Option(
        "--max-records-per-batch",
        metavar="N",
        min=0,
        help="Maximum offsets in one micro-batch of a query; 0 means no limit.",
    ),
]
MaxBytesPerBatch = Annotated[
    int,
    typer.Option(
        "--max-bytes-per-batch",
        metavar="N",
        min=0,
        help="Maximum bytes of decoded records in one micro-batch of a query; 0 means no limit.",
    ),
]
_DEFAULT_HTTP = "127.0.0.1:8080"


def run(
    file: File,
    data: DataOption = None,
    bootstrap: OptionalBootstrap = None,
    log: LogAddress = None,
    master: Master = None,
    conf: Conf = None,
    cores: Cores = 2,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Discard the checkpoints and rebuild all views from the log.")
    ] = False,
    rebuild_view: Annotated[
        list[str] | None,
        typer.Option(
            "--rebuild-view",
            metavar="VIEW",
            help="Rebuild this view over several topics, or this projection, from the log, and leave the "
            "others as they are. May be repeated.",
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Compare rebuilt views with the old ones, and wait for `headrace views switch` if anything "
            "differs.",
        ),
    ] = False,
    buckets: Annotated[
        int | None,
        typer.Option(
            "--buckets",
            metavar="N",
            min=1,
            max=4096,
            help="Spread state over this many buckets: the most tasks that can work on it at a time. "
            "Default: as many as before; for a new query 8, or two for each core of a cluster.",
        ),
    ] = None,
    from_snapshot: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Start from this snapshot (headrace snapshot), where --data has nothing yet.",
        ),
    ] = None,
    sinks: Annotated[
        Literal["driver", "executors"] | None,
        typer.Option(
            "--sinks",
            help="Who writes the results. Default: the executors of a cluster, the driver of a local Spark.",
        ),
    ] = None,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="Stop at the current end of the log instead of running on."),
    ] = False,
    until_stdin_closes: UntilStdinCloses = False,
    max_records_per_batch: MaxRecordsPerBatch = 4_000_000,
    max_bytes_per_batch: MaxBytesPerBatch = 256 << 20,
    http: Http = None,
    no_http: NoHttp = False,
    traceback: Traceback = False,
    as_json: Json = False,
) -> int:
    """Run an application: log, Spark, views and console."""
    from headrace.app import RunOptions, data_place, load_app
    from headrace.streams.spark import parse_settings

    del traceback
    if log is not None and bootstrap is not None:
        raise UsageError("--log sets the embedded log, and --bootstrap uses another; give only one")
    if until_stdin_closes:
        stop_at_end_of_input()
    output = Output(as_json=as_json)
    app = load_app(file)
    folder, url = data_place(data, app.name)
    options = RunOptions(
        data=folder,
        url=url,
        bootstrap=bootstrap,
        log=log,
        identity=_identity_at(bootstrap),
        master=master,
        cores=cores,
        conf=parse_settings(conf or ()),
        rebuild=rebuild,
        rebuild_views=tuple(rebuild_view or ()),
        compare=compare,
        buckets=buckets,
        from_snapshot=from_snapshot,
        sinks=sinks,
        until_caught_up=until_caught_up,
        max_records_per_batch=max_records_per_batch,
        max_bytes_per_batch=max_bytes_per_batch,
        file=file,
        http=_console_address(http, no_http=no_http or (until_caught_up and http is None)),
    )
    stopping = Stopping(_end_at_once)
    with hearing(stopping.hear):
        try:
            _run(app, options, output, stopping)
        except KeyboardInterrupt:  # before everything ran; whatever did has been ended
            _say(output, "stopped")
    return ExitCode.DONE


def _run(app: "App", options: "RunOptions", output: Output, stopping: Stopping) -> None:
    from headrace.app.run import running

    if app.entity_types and not app.views:
        _serve(app, options, output, stopping)
        return

    with running(
        app,
        options,
        on_batch=lambda report: _show(output, report),
        on_message=lambda message: _say(output, message),
    ) as started:
        _say(output, f"running {app.name}: {', '.join(app.views)}; Ctrl-C stops it")
        stopping.on_stop = started.stop
        started.wait()
    if stopping.asked_at is not None:
        _say(output, "stopped")


def _serve(app: "App", options: "RunOptions", output: Output, stopping: Stopping) -> None:
    """Entities alone need no Spark."""
    from headrace.app.run import serving

    with serving(app, options, on_message=lambda message: _say(output, message)) as started:
        _say(output, f"serving {app.name}: {', '.join(app.entity_types)}; Ctrl-C stops it")
        stopping.on_stop = started.stop
        started.wait()
    _say(output, "stopped")


def _end_at_once() -> None:
    """The processes beside this one end as their inputs close; what was under way is done again."""
    os._exit(ExitCode.INTERRUPTED)


def _identity_at(bootstrap: str | None) -> "Identity":
    """Who the application is towards the log: nobody towards its own, which asks nobody."""
    from headrace.client import Identity

    return Identity() if bootstrap is None else identity()


def _console_address(http: str | None, *, no_http: bool) -> str | None:
    """Where the console shall listen: where the user said, else where nobody does yet."""
    from headrace.app.processes import free_address

    if no_http:
        return None
    return http if http is not None else free_address(_DEFAULT_HTTP)


def plan(
    file: File,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE.svg", help="Write the graph to this file.")
    ] = None,
    traceback: Traceback = False,
    as_json: Json = False,
) -> int:
    """Show what an application does, without running it."""
    from headrace.app import RunOptions, load_app, reading_from
    from headrace.app.plan import as_svg, as_text, graph_of, plan_app
    from headrace.app.run import open_spark
    from headrace.client import Connection

    del traceback
    app = load_app(file)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ending:
        spark = open_spark(app.name, RunOptions(data=Path(folder)), ending)
        with reading_from(spark, Connection()):
            graph = graph_of(plan_app(app, spark))
    if picture is not None:
        picture.write_text(as_svg(graph), encoding="utf-8")
    Output(as_json=as_json).document(graph.to_json(), lambda _: as_text(graph))
    return ExitCode.DONE


def state(
    file: File,
    data: DataOption = None,
    buckets: Annotated[bool, typer.Option("--buckets", help="Show every bucket, not only sums.")] = False,
    traceback: Traceback = False,
    as_json: Json = False,
) -> int:
    """Show how much state an application keeps."""
    from headrace.app import data_place, load_app
    from headrace.app.status import FollowedFolder, read_description, read_state

    del traceback
    app = load_app(file)
    folder, url = data_place(data, app.name)
    with contextlib.ExitStack() as ending:
        if url is not None:
            folder = ending.enter_context(contextlib.closing(FollowedFolder(url))).path
        described = read_description(folder)
        if described is None:
            raise ConfigError(f"there is no application in {folder}; run it first, or name its --data")
        found = read_state(folder, described)
    Output(as_json=as_json).document(
        {"app": described.app, "operators": [state_data(each) for each in found]},
        lambda _: render_state(found, by_bucket=buckets),
    )
    return ExitCode.DONE


def verify(
    file: File,
    view: Annotated[str | None, typer.Argument(metavar="VIEW", help="Verify only this view.")] = None,
    data: DataOption = None,
    bootstrap: OptionalBootstrap = None,
    master: Master = None,
    conf: Conf = None,
    cores: Cores = 2,
    until_stdin_closes: UntilStdinCloses = False,
    traceback: Traceback = False,
    as_json: Json = False,
) -> int:
    """Recompute views from the log and compare."""
    from headrace.app import RunOptions, data_place, load_app
    from headrace.app.verify import verified
    from headrace.streams.spark import parse_settings

    del traceback
    if until_stdin_closes:
        stop_at_end_of_input()
    output = Output(as_json=as_json)
    app = load_app(file)
    folder, url = data_place(data, app.name)
    options = RunOptions(
        data=folder,
        url=url,
        bootstrap=bootstrap,
        identity=_identity_at(bootstrap),
        master=master,
        conf=parse_settings(conf or ()),
        cores=cores,
    )
    verdicts = []
    notes: list[str] = []
    for verdict in verified(app, options, view, on_message=notes.append):
        verdicts.append(verdict)
        if not as_json:
            _say(output, verdict_line(verdict))
    for note in () if as_json else notes:
        _say(output, note)
    output.document(
        {"views": [verdict_data(each) for each in verdicts], "notes": notes},
        lambda _: render_verdicts(verdicts),
    )
    return ExitCode.DONE if all(each.is_equal for each in verdicts) else ExitCode.FAILED


def _say(output: Output, message: str) -> None:
    if output.as_json:
        output.line({"message": message})
    else:
        output.write(message)


def _show(output: Output, report: "BatchReport") -> None:
    if output.as_json:
        output.line(report.to_json())
    elif line := batch_line(report):
        output.write(line)
