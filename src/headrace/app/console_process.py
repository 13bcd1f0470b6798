"""The console beside a running application: `headrace console` in a process of its own, kept alive.

The application runs without it: a console that cannot be started is said and tried
again, ever more rarely, and stops nobody.
"""

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headrace.app.children import Child, Companion
from headrace.client.connection import Connection

__all__ = ["ConsoleProcess", "free_address"]


def free_address(listen: str) -> str:
    """The address if nobody listens there, else the same host with a port that is free."""
    host, _, port = listen.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return f"{host}:0"
    return listen


class ConsoleProcess(Companion):
    """The console of one run; `on_command` gets what it asks of the driver, from a thread."""

    def __init__(
        self,
        data: Path,
        connection: Connection,
        listen: str,
        *,
        environment: Mapping[str, str],
        on_command: Callable[[dict[str, Any]], None],
    ) -> None:
        child = Child(
            ["console", "--commands", "--data", str(data), "--bootstrap", connection.bootstrap_servers],
            name=f"the console on {listen}",
            listen=listen,
            messages=data / "console.messages",
            environment={**environment, **connection.environment()},
            on_line=on_command,
        )
        super().__init__(child, f"the console at {child.announced['url']}")

    @property
    def url(self) -> str:
        return str(self.child.announced["url"])

    @property
    def pid(self) -> int:
        return self.child.pid
