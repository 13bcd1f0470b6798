"""`headrace broker`: a broker in this process, its flags made from its settings.

Parsed by argparse, unlike its siblings: what the others import for their comfort
(and for talking to brokers) would double a broker's start-up time and stay in its
memory for good.
"""

import argparse
import os
from collections.abc import Sequence
from typing import Any, NoReturn, get_type_hints

from headrace.broker import Broker, BrokerSettings, GroupSettings, run
from headrace.cli.exit_codes import ExitCode
from headrace.cli.output import Output
from headrace.config import describe, load
from headrace.errors import ConfigError, HeadraceError

__all__ = ["main", "parser"]

SUMMARY = "Run a broker: the log, served over Kafka's protocol."


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def main(arguments: Sequence[str]) -> int:
    """Serves until it is told to stop; the exit code."""
    output = Output(as_json="--json" in arguments)
    try:
        return _serve(parser().parse_args(arguments), output)
    except HeadraceError as error:
        code = ExitCode.USAGE if isinstance(error, ConfigError) else ExitCode.FAILED
        output.error(str(error), exit_code=int(code))
        return code


def parser() -> argparse.ArgumentParser:
    """A flag for every setting of the broker and of its groups; None means not given."""
    made = _Parser(
        "headrace broker", description=SUMMARY + " Stops cleanly on Ctrl-C or SIGTERM.", allow_abbrev=False
    )
    for settings in (BrokerSettings, GroupSettings):
        hints = get_type_hints(settings)
        for name, _, default, text in describe(settings):
            _add_flag(made, name, hints[name], default, text)
    made.add_argument("--json", action="store_true", help="Announce and fail in JSON.")
    return made


def _add_flag(made: argparse.ArgumentParser, name: str, kind: Any, default: Any, text: str) -> None:
    flag = "--" + name.replace("_", "-")
    shown = str(default).lower() if isinstance(default, bool) else str(default)
    described = f"{text} Default: {shown}." if shown else text
    described = described.replace("%", "%%")
    if kind is bool:
        made.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=described)
    else:
        metavar = "TEXT" if kind is str else "N"
        made.add_argument(flag, type=kind, default=None, metavar=metavar, help=described)


def _serve(given: argparse.Namespace, output: Output) -> int:
    return run(
        load(BrokerSettings, **_belonging(BrokerSettings, given)),
        group_settings=load(GroupSettings, **_belonging(GroupSettings, given)),
        on_listening=lambda broker: _announce(output, broker),
    )


def _belonging(settings: type, given: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(given, name) for name, *_ in describe(settings)}


def _announce(output: Output, broker: Broker) -> None:
    """One line once clients can connect: the sign that scripts wait for."""
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    address, data, pid = f"{host}:{broker.port}", os.path.realpath(broker.settings.data), os.getpid()
    if output.as_json:
        line = {"listening": address, "host": broker.host, "port": broker.port, "data": data, "pid": pid}
        output.line({**line, "metrics_port": broker.metrics_port} if broker.metrics_port else line)
    else:
        metrics = f", metrics on port {broker.metrics_port}" if broker.metrics_port else ""
        output.write(f"listening on {address}, data in {data}, pid {pid}{metrics}")
