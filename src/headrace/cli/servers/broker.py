"""`headrace broker`: a broker in this process, its flags made from its settings.

Parsed by argparse, unlike its siblings: what the others import for their comfort
(and for talking to brokers) would double a broker's start-up time and stay in its
memory for good.
"""

import argparse
import os
from collections.abc import Sequence

from headrace.broker import Broker, BrokerSettings, GroupSettings, run
from headrace.cli.servers.flags import FlagGroups, Parser, add_flags, run_command, settings_of
from headrace.cli.terminal import Output
from headrace.config import load

__all__ = ["main", "parser"]

SUMMARY = "Run a broker: the log, served over Kafka's protocol."


BROKER_FLAGS: FlagGroups = {
    "address and data": ("data", "listen", "advertise", "node_id", "until_stdin_closes"),
    "access": ("authenticate", "super_users", "tls_", "allow_unauthenticated"),
    "topics": (
        "auto_create",
        "default_partitions",
        "producer_id",
        "upkeep",
        "compaction",
        "check_records",
    ),
    "limits": (
        "max_",
        "request_memory",
        "produce_pipeline",
        "fetch_",
        "commit_threads",
        "receive_timeout",
        "idle_timeout",
        "quota_",
    ),
    "monitoring": ("lag_check", "metrics_", "health_"),
}
GROUP_FLAGS: FlagGroups = {
    "consumer groups": ("group_", "groups_", "offsets_", "offset_"),
    "queues (share groups)": ("group_share_",),
    "transactions": ("transaction",),
}


def main(arguments: Sequence[str]) -> int:
    """Serves until it is told to stop; the exit code."""
    return run_command(arguments, lambda output: _serve(parser().parse_args(arguments), output))


def parser() -> argparse.ArgumentParser:
    """A flag for every setting of the broker and of its groups; None means not given."""
    made = Parser(
        "headrace broker",
        usage="headrace broker [FLAGS]",
        description=SUMMARY + " Stops cleanly on Ctrl-C or SIGTERM.",
        epilog="Each flag can also be set in the environment: --node-id as HEADRACE_NODE_ID.",
        allow_abbrev=False,
    )
    add_flags(made, BrokerSettings, BROKER_FLAGS)
    add_flags(made, GroupSettings, GROUP_FLAGS)
    made.add_argument("--json", action="store_true", help="Print the address, and errors, as JSON.")
    return made


def _serve(given: argparse.Namespace, output: Output) -> int:
    code = run(
        load(BrokerSettings, **settings_of(BrokerSettings, given)),
        group_settings=load(GroupSettings, **settings_of(GroupSettings, given)),
        on_listening=lambda broker: _announce(output, broker),
    )
    output.farewell()
    return code


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
