"""The `headrace` command.

Speaks to a log only over Kafka's protocol, so every command works on ours and on
a Kafka. Each command first makes plain data, then prints it as JSON (`--json`,
shapes in `docs/reference/cli.md`) or as tables. What a record or a client is called is
somebody else's data: nothing of it reaches a terminal unescaped.

May import every room; imports the heavy ones only in the command that needs them.
"""

import sys

from headrace.stopping import leave_signals_to_parent

__all__ = ["main"]


def main() -> None:
    """The console script."""
    leave_signals_to_parent()
    if sys.argv[1:2] == ["broker"]:
        from headrace.cli.servers.broker import main as serve

        sys.exit(serve(sys.argv[2:]))
    if sys.argv[1:2] == ["console"]:
        from headrace.cli.servers.console import main as serve_console

        sys.exit(serve_console(sys.argv[2:]))
    from headrace.cli.main import main as enter

    enter()
