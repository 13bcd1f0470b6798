"""The deliverer beside a running application: `headrace deliver` in a process of its own, kept alive.

The application runs without it: what its hooks would have sent waits on the log.
"""

from pathlib import Path

from headrace.app.children import Child, Companion
from headrace.client.connection import Connection

__all__ = ["DelivererProcess"]


class DelivererProcess(Companion):
    """The deliverer of one run, which finds the hooks in the description in the data folder."""

    def __init__(self, data: Path, connection: Connection) -> None:
        child = Child(
            ["deliver", "--data", str(data), "--bootstrap", connection.bootstrap_servers],
            name="the deliverer of webhooks and mail",
            listen=None,
            messages=data / "deliver.messages",
            environment=connection.environment(),
        )
        super().__init__(child, "the deliverer of webhooks and mail")

    @property
    def pid(self) -> int:
        return self.child.pid
