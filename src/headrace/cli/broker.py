"""`headrace broker`: a broker in this process, its flags made from its settings.

Parsed by argparse, unlike its siblings: what the others import for their comfort
(and for talking to brokers) would double a broker's start-up time and stay in its
memory for good.
"""

import argparse
import os
from collections.abc import Sequence

from headrace.broker import Broker, BrokerSettings, GroupSettings, run
from headrace.cli.flags import Parser, add_flags, belonging, run_command
from headrace.cli.output import Output
from headrace.config import load

__all__ = ["main", "parser"]

SUMMARY = "Run a broker: the log, served over Kafka's protocol."


def main(arguments: Sequence[str]) -> int:
    """Serves until it is told to stop; the exit code."""
    return run_command(arguments, lambda output: _serve(parser().parse_args(arguments), output))


def parser() -> argparse.ArgumentParser:
    """A flag for every setting of the broker and of its groups; None means not given."""
    made = Parser(
        "headrace broker", description=SUMMARY + " Stops cleanly on Ctrl-C or SIGTERM.", allow_abbrev=False
    )
    for settings in (BrokerSettings, GroupSettings):
        add_flags(made, settings)
    made.add_argument("--json", action="store_true", help="Announce and fail in JSON.")
    return made


def _serve(given: argparse.Namespace, output: Output) -> int:
    return run(
        load(BrokerSettings, **belonging(BrokerSettings, given)),
        group_settings=load(GroupSettings, **belonging(GroupSettings, given)),
        on_listening=lambda broker: _announce(output, broker),
    )


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
