"""`headrace hooks` and `headrace deliver`: who is told of records, and the process that tells them."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.clients import new_producer, require_listener
from headrace.cli.end_of_input import stop_at_end_of_input
from headrace.cli.failures import ExitCode
from headrace.cli.identity import connection_to
from headrace.cli.options import DEFAULT_BOOTSTRAP, Json
from headrace.cli.terminal import Output, table_text
from headrace.clock import SystemClock
from headrace.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from headrace.app.status import AppDescription
    from headrace.hooks import Hook

__all__ = ["app", "deliver"]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show and switch an application's webhooks and mail."
)

Name = Annotated[str, typer.Argument(metavar="HOOK", help="Name of the hook.")]
OptionalBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="HEADRACE_BOOTSTRAP",
        metavar="HOST:PORT[,…]",
        help="The log. Default: the log of the application in --data, or 127.0.0.1:9092.",
    ),
]
OptionalDataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Data folder of an application; only its hooks."),
]
DataOption = Annotated[Path, typer.Option("--data", metavar="DIR", help="Data folder of the application.")]


# --- looking and turning --------------------------------------------------------------------------


@app.command("list")
def list_command(
    data: OptionalDataOption = None, bootstrap: OptionalBootstrap = None, as_json: Json = False
) -> None:
    """List hooks with their targets, progress and counts."""
    place = _Place(data, bootstrap)
    Output(as_json=as_json).document({"hooks": place.hooks()}, _render)


@app.command("enable")
def enable(
    name: Name, data: OptionalDataOption = None, bootstrap: OptionalBootstrap = None, as_json: Json = False
) -> None:
    """Enable a hook; it continues where it was."""
    _turn(_Place(data, bootstrap), name, enabled=True, output=Output(as_json=as_json))


@app.command("disable")
def disable(
    name: Name, data: OptionalDataOption = None, bootstrap: OptionalBootstrap = None, as_json: Json = False
) -> None:
    """Disable a hook; records wait in the log meanwhile."""
    _turn(_Place(data, bootstrap), name, enabled=False, output=Output(as_json=as_json))


def _turn(place: "_Place", name: str, *, enabled: bool, output: Output) -> None:
    from headrace.hooks import state_topic
    from headrace.hooks.log import HookSwitch, switch_key

    found = [each for each in place.hooks() if each["hook"] == name]
    if len(found) != 1:
        known = ", ".join(f"{each['app']}: {each['hook']}" for each in place.hooks()) or "none"
        what = "several applications have" if found else "no application has"
        raise RequestError(
            f"{what} a hook {name!r} (the hooks are: {known}); name the application with --data"
        )
    switch = HookSwitch(enabled=enabled, reason="by `headrace hooks`", at_ms=SystemClock().now_ms())
    refused: list[Any] = []
    sender = new_producer(place.bootstrap)
    sender.produce(
        state_topic(found[0]["app"]),
        switch.to_bytes(),
        switch_key(name),
        partition=0,
        on_delivery=lambda error, _: refused.append(error) if error is not None else None,
    )
    if sender.flush(20) or refused:
        raise RequestError(
            f"the log did not accept the change: {refused[0].str() if refused else 'no answer'}; try again"
        )
    word = "on" if enabled else "off"
    output.document({"hook": name, "app": found[0]["app"], "enabled": enabled}, lambda _: f"{name} is {word}")


class _Place:
    """A log, and the application that is meant, if one was named."""

    def __init__(self, data: Path | None, bootstrap: str | None) -> None:
        self.described = None if data is None else _described(data)
        own = None if self.described is None else self.described.bootstrap
        self.bootstrap = bootstrap or own or DEFAULT_BOOTSTRAP
        self.connection = connection_to(self.bootstrap, retry_timeout_ms=10_000)

    def hooks(self) -> list[dict[str, Any]]:
        """Every hook that is declared, or has ever been at work."""
        from headrace.hooks.log import list_hooks

        require_listener(self.bootstrap)
        app = None if self.described is None else self.described.app
        return list_hooks(self.connection, app=app, declared=_declared(self.described))


def _described(data: Path) -> "AppDescription":
    from headrace.app.status import read_description

    found = read_description(data)
    if found is None:
        raise ConfigError(f"there is no application in {data}; start one with `headrace run --data`")
    return found


def _declared(described: "AppDescription | None") -> "list[Hook]":
    from headrace.hooks import Hook

    return [] if described is None else [Hook.from_json(each) for each in described.hooks]


def _render(data: Mapping[str, Any]) -> str:
    if not data["hooks"]:
        return "no hooks"
    columns = ("hook", "topic", "to", "on", "delivered", "retried", "muted", "dead", "behind", "remark")
    return table_text(columns, [_row(each) for each in data["hooks"]])


def _row(hook: Mapping[str, Any]) -> list[Any]:
    counts = [hook["counts"][name] for name in ("delivered", "retried", "muted", "dead")]
    last = hook["last"]
    remark = hook["problem"] or ("" if hook["enabled"] else hook["reason"])
    if not remark and last is not None and last["outcome"] != "delivered":
        remark = last["reason"]
    return [hook["hook"], hook["topic"], hook["shown"], hook["enabled"], *counts, hook["behind"], remark]


# --- sending --------------------------------------------------------------------------------------


@app.command("test")
def try_hook(name: Name, data: DataOption, as_json: Json = False) -> int:
    """Send one sample record to a hook's target."""
    from headrace.hooks import make_sender
    from headrace.hooks.send import sample_delivery

    hooks = {each.name: each for each in _declared(_described(data))}
    if name not in hooks:
        raise RequestError(f"no hook {name!r} is declared; the hooks are: {', '.join(hooks) or 'none'}")
    sender = make_sender(hooks[name])
    try:
        outcome = asyncio.run(sender.send(sample_delivery(hooks[name], SystemClock().now_ms())))
    finally:
        sender.close()
    result = {"hook": name, "outcome": outcome.result.value, "reason": outcome.reason}
    Output(as_json=as_json).document(result, lambda _: f"{outcome.result.value}: {outcome.reason}")
    return ExitCode.DONE if outcome.result.value == "delivered" else ExitCode.FAILED


def deliver(
    data: DataOption,
    bootstrap: OptionalBootstrap = None,
    until_stdin_closes: Annotated[
        bool,
        typer.Option(
            "--until-stdin-closes",
            help="Stop when standard input closes, as it does when the parent process ends.",
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Deliver an application's webhooks and mail."""
    from headrace.hooks import Deliverer, run_deliverer

    output, described = Output(as_json=as_json), _described(data)
    hooks = _declared(described)
    if not hooks:
        raise ConfigError(
            f"application {described.app!r} has no hooks; declare one with app.webhook or app.email"
        )
    deliverer = Deliverer(
        described.app,
        hooks,
        connection_to(bootstrap or described.bootstrap),
        sources=[each.topic for each in described.streams],
        on_message=output.note,
    )
    names = [each.name for each in hooks]
    ready = {"app": described.app, "hooks": names, "pid": os.getpid()}

    def announce() -> None:
        if as_json:
            output.line(ready)
        else:
            output.write(f"delivering for {described.app}: {', '.join(names)}; Ctrl-C stops it")

    if until_stdin_closes:
        stop_at_end_of_input()  # and for good, should the end in order take too long
    run_deliverer(deliverer, on_ready=announce, until_stdin_closes=until_stdin_closes)
    output.farewell()
    return ExitCode.DONE
