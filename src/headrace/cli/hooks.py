"""`headrace hooks` and `headrace deliver`: who is told of records, and the process that tells them."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.connection import producer, require_listener
from headrace.cli.exit_codes import ExitCode
from headrace.cli.identity import connection_to
from headrace.cli.options import DEFAULT_BOOTSTRAP, Json
from headrace.cli.output import Output, table_text
from headrace.cli.parent import stop_at_end_of_input
from headrace.clock import SystemClock
from headrace.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from headrace.app.description import AppDescription
    from headrace.direct.hook import Hook

__all__ = ["app", "deliver"]

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show webhooks and mail of applications; turn them."
)

Name = Annotated[str, typer.Argument(metavar="HOOK", help="Name of the hook.")]
OptionalBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="HEADRACE_BOOTSTRAP",
        metavar="HOST:PORT[,…]",
        help="The log. Default: that of the application in --data, else 127.0.0.1:9092.",
    ),
]
OptionalData = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Data folder of an application; only its hooks are meant."),
]
Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="Data folder of the application.")]


# --- looking and turning --------------------------------------------------------------------------


@app.command("list")
def list_command(
    data: OptionalData = None, bootstrap: OptionalBootstrap = None, as_json: Json = False
) -> None:
    """List hooks: where they send to, how far they are, what they counted."""
    place = _Place(data, bootstrap)
    Output(as_json=as_json).document({"hooks": place.hooks()}, _render)


@app.command("enable")
def enable(
    name: Name, data: OptionalData = None, bootstrap: OptionalBootstrap = None, as_json: Json = False
) -> None:
    """Turn a hook on again; it goes on where it was."""
    _turn(_Place(data, bootstrap), name, enabled=True, output=Output(as_json=as_json))


@app.command("disable")
def disable(
    name: Name, data: OptionalData = None, bootstrap: OptionalBootstrap = None, as_json: Json = False
) -> None:
    """Turn a hook off; records wait on the log meanwhile."""
    _turn(_Place(data, bootstrap), name, enabled=False, output=Output(as_json=as_json))


def _turn(place: "_Place", name: str, *, enabled: bool, output: Output) -> None:
    from headrace.direct.hook import state_topic
    from headrace.direct.state import Switch, switch_key

    found = [each for each in place.hooks() if each["hook"] == name]
    if len(found) != 1:
        known = ", ".join(f"{each['app']}: {each['hook']}" for each in place.hooks()) or "none"
        what = "several applications have" if found else "no application has"
        raise RequestError(f"{what} a hook {name!r} (there is {known}); name the application's --data")
    switch = Switch(enabled=enabled, reason="by `headrace hooks`", at_ms=SystemClock().now_ms())
    refused: list[Any] = []
    sender = producer(place.bootstrap)
    sender.produce(
        state_topic(found[0]["app"]),
        switch.to_bytes(),
        switch_key(name),
        partition=0,
        on_delivery=lambda error, _: refused.append(error) if error is not None else None,
    )
    if sender.flush(20) or refused:
        raise RequestError(
            f"the log did not take it: {refused[0].str() if refused else 'no answer'}; try again"
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
        from headrace.direct.listing import list_hooks

        require_listener(self.bootstrap)
        app = None if self.described is None else self.described.app
        return list_hooks(self.connection, app=app, declared=_declared(self.described))


def _described(data: Path) -> "AppDescription":
    from headrace.app.description import read_description

    found = read_description(data)
    if found is None:
        raise ConfigError(f"there is no application in {data}; start one there with `headrace run --data`")
    return found


def _declared(described: "AppDescription | None") -> "list[Hook]":
    from headrace.direct.hook import Hook

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
def try_hook(name: Name, data: Data, as_json: Json = False) -> int:
    """Send a made-up record to a hook's target, once, from here."""
    from headrace.direct.deliverer import make_sender
    from headrace.direct.trying import made_up_message

    hooks = {each.name: each for each in _declared(_described(data))}
    if name not in hooks:
        raise RequestError(f"no hook {name!r} is declared; there is {', '.join(hooks) or 'none'}")
    sender = make_sender(hooks[name])
    try:
        outcome = asyncio.run(sender.send(made_up_message(hooks[name], SystemClock().now_ms())))
    finally:
        sender.close()
    result = {"hook": name, "outcome": outcome.verdict.value, "reason": outcome.reason}
    Output(as_json=as_json).document(result, lambda _: f"{outcome.verdict.value}: {outcome.reason}")
    return ExitCode.DONE if outcome.verdict.value == "delivered" else ExitCode.FAILED


def deliver(
    data: Data,
    bootstrap: OptionalBootstrap = None,
    until_stdin_closes: Annotated[
        bool,
        typer.Option(
            "--until-stdin-closes", help="Stop once the input closes, as it does when a parent process ends."
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Send records to the webhooks and mail addresses of an application, until Ctrl-C."""
    from headrace.direct.deliverer import Deliverer
    from headrace.direct.process import run

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
        stop_at_end_of_input()
    run(deliverer, on_ready=announce)
    return ExitCode.DONE
