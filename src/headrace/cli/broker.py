"""`headrace broker`: a broker in this process, its flags made from its settings."""

import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer

from headrace.broker import Broker, BrokerSettings, process, run
from headrace.cli.options import Json
from headrace.cli.output import Output
from headrace.config import describe, load

__all__ = ["make_command"]

# The rooms' contract keeps `groups` behind the broker, whose settings these are.
GroupSettings: type[Any] = process.GroupSettings  # type: ignore[attr-defined]

SUMMARY = "Run a broker: the log, served over Kafka's protocol."


def make_command() -> Any:
    """The command with a flag for every setting of the broker and of its groups."""
    single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    single.command("broker", help=SUMMARY + " Stops cleanly on Ctrl-C or SIGTERM.")(
        _with_flags(_serve, BrokerSettings, GroupSettings)
    )
    return typer.main.get_command(single)


def _serve(as_json: bool, **given: Any) -> int:
    output = Output(as_json=as_json)
    broker_settings = load(BrokerSettings, **_belonging(BrokerSettings, given))
    group_settings = load(GroupSettings, **_belonging(GroupSettings, given))
    return run(
        broker_settings,
        group_settings=group_settings,
        on_listening=lambda broker: _announce(output, broker),
    )


def _belonging(settings: type, given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name, *_ in describe(settings)}


def _announce(output: Output, broker: Broker) -> None:
    """One line once clients can connect: the sign that scripts wait for."""
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    address, data, pid = f"{host}:{broker.port}", os.path.realpath(broker.settings.data), os.getpid()
    if output.as_json:
        output.line(
            {"listening": address, "host": broker.host, "port": broker.port, "data": data, "pid": pid}
        )
    else:
        output.write(f"listening on {address}, data in {data}, pid {pid}")


def _with_flags(serve: Callable[..., int], *settings: type) -> Callable[..., int]:
    """The function with a signature of one option a setting; None means not given."""
    parameters = [
        _parameter(name, hint, default, help_)
        for each in settings
        for name, hint, default, help_ in _flags(each)
    ]
    parameters.append(
        inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)
    )

    def command(**given: Any) -> int:
        return serve(given.pop("as_json"), **given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _flags(settings: type) -> list[tuple[str, Any, Any, str]]:
    hints = get_type_hints(settings)
    return [(name, hints[name], default, help_) for name, _, default, help_ in describe(settings)]


def _parameter(name: str, hint: Any, default: Any, help_: str) -> inspect.Parameter:
    flag = "--" + name.replace("_", "-")
    names = f"{flag}/--no-{flag[2:]}" if hint is bool else flag
    metavar = {str: "TEXT", int: "N", float: "N"}.get(hint)
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    text = f"{help_}  [default: {shown}]" if shown else help_
    option = typer.Option(names, help=text, metavar=metavar, show_default=False)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[hint | None, option]
    )
