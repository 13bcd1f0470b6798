"""`headrace run`, `headrace plan` and `headrace verify`: an application file, running, drawn and proved."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.application_views import batch_line, render_verdicts, verdict_data, verdict_line
from headrace.cli.exit_codes import ExitCode
from headrace.cli.identity import identity
from headrace.cli.options import Json
from headrace.cli.output import Output
from headrace.cli.parent import stop_at_end_of_input

if TYPE_CHECKING:
    from headrace.app.sink import BatchReport
    from headrace.client import Identity

__all__ = ["plan", "run", "verify"]

File = Annotated[Path, typer.Argument(metavar="FILE", help="The Python file of the application.")]
Data = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="Folder of log, checkpoints and views. Default: .headrace/NAME."
    ),
]
OptionalBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT[,…]",
        help="Use this log, ours or a Kafka, instead of an embedded one.",
    ),
]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="A Spark master instead of a local Spark.")
]
Cores = Annotated[int, typer.Option("--cores", metavar="N", min=1, help="Cores of the local Spark.")]
UntilStdinCloses = Annotated[
    bool,
    typer.Option(
        "--until-stdin-closes", help="Stop once the input closes, as it does when a parent process ends."
    ),
]
Http = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        help="Where the console listens; port 0 picks one. Default: 127.0.0.1:8080, or a free port if taken.",
    ),
]
NoHttp = Annotated[bool, typer.Option("--no-http", help="Run without the console.")]
MaxRecordsPerBatch = Annotated[
    int,
    typer.Option(
        "--max-records-per-batch",
        metavar="N",
        min=0,
        help="Offsets that one micro-batch of a query takes at most; 0 means no limit.",
    ),
]
MaxBytesPerBatch = Annotated[
    int,
    typer.Option(
        "--max-bytes-per-batch",
        metavar="N",
        min=0,
        help="Bytes of log that one micro-batch of a query takes at most; 0 means no limit.",
    ),
]
_DEFAULT_HTTP = "127.0.0.1:8080"


def run(
    file: File,
    data: Data = None,
    bootstrap: OptionalBootstrap = None,
    master: Master = None,
    cores: Cores = 2,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Drop the checkpoints and build all views anew from the log.")
    ] = False,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="Stop at the end that the log has now, instead of going on."),
    ] = False,
    until_stdin_closes: UntilStdinCloses = False,
    max_records_per_batch: MaxRecordsPerBatch = 4_000_000,
    max_bytes_per_batch: MaxBytesPerBatch = 256 << 20,
    http: Http = None,
    no_http: NoHttp = False,
    as_json: Json = False,
) -> int:
    """Run an application: its log, Spark, its views and their console, until Ctrl-C."""
    from headrace.app.loading import load_app
    from headrace.app.running import RunOptions, running

    if until_stdin_closes:
        stop_at_end_of_input()
    output = Output(as_json=as_json)
    app = load_app(file)
    options = RunOptions(
        data=data or Path(".headrace") / app.name,
        bootstrap=bootstrap,
        identity=_identity_at(bootstrap),
        master=master,
        cores=cores,
        rebuild=rebuild,
        until_caught_up=until_caught_up,
        max_records_per_batch=max_records_per_batch,
        max_bytes_per_batch=max_bytes_per_batch,
        file=file,
        http=_console_address(http, no_http=no_http or (until_caught_up and http is None)),
    )
    with running(
        app,
        options,
        on_batch=lambda report: _show(output, report),
        on_message=lambda message: _say(output, message),
    ) as started:
        _say(output, f"running {app.name}: {', '.join(app.views)}; Ctrl-C stops it")
        signal.signal(signal.SIGTERM, lambda *_: started.stop())
        try:
            started.wait()
        except KeyboardInterrupt:
            _say(output, "stopping")
    return ExitCode.DONE


def _identity_at(bootstrap: str | None) -> "Identity":
    """Who the application is towards the log: nobody towards its own, which asks nobody."""
    from headrace.client import Identity

    return Identity() if bootstrap is None else identity()


def _console_address(http: str | None, *, no_http: bool) -> str | None:
    """Where the console shall listen: where the user said, else where nobody does yet."""
    from headrace.app.console_process import free_address

    if no_http:
        return None
    return http if http is not None else free_address(_DEFAULT_HTTP)


def plan(
    file: File,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE.svg", help="Draw the graph into this file.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Show what an application does, without running it."""
    from headrace.app.drawing import as_text, graph_of
    from headrace.app.loading import load_app
    from headrace.app.picture import as_svg
    from headrace.app.planning import plan_app
    from headrace.app.surroundings import reading_from
    from headrace.client import Connection
    from headrace.streams import local_spark

    app = load_app(file)
    spark = local_spark(app.name)
    try:
        with reading_from(spark, Connection()):
            graph = graph_of(plan_app(app, spark))
    finally:
        spark.stop()
    if picture is not None:
        picture.write_text(as_svg(graph), encoding="utf-8")
    Output(as_json=as_json).document(graph.to_json(), lambda _: as_text(graph))
    return ExitCode.DONE


def verify(
    file: File,
    view: Annotated[str | None, typer.Argument(metavar="[VIEW]", help="One view; all without.")] = None,
    data: Data = None,
    bootstrap: OptionalBootstrap = None,
    cores: Cores = 2,
    until_stdin_closes: UntilStdinCloses = False,
    as_json: Json = False,
) -> int:
    """Recompute views from the log in batch, and compare them with what is served."""
    from headrace.app.loading import load_app
    from headrace.app.proving import verified
    from headrace.app.starting import RunOptions

    if until_stdin_closes:
        stop_at_end_of_input()
    output = Output(as_json=as_json)
    app = load_app(file)
    options = RunOptions(
        data=data or Path(".headrace") / app.name,
        bootstrap=bootstrap,
        identity=_identity_at(bootstrap),
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
