"""The embedded log: a broker in a process of its own, kept alive."""

import socket
from pathlib import Path

from headrace.app.children import Child

__all__ = ["EmbeddedLog", "running_address"]


def running_address(data: Path) -> str | None:
    """Where the embedded log of this folder listens, if it runs now."""
    try:
        address = _address_file(data).read_text()
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=2):
            return address
    except (OSError, ValueError):
        return None


def _address_file(data: Path) -> Path:
    return data.with_name("log.address")


class EmbeddedLog:
    """`headrace broker` on a free loopback port, started again on the same port should it die."""

    def __init__(self, data: Path) -> None:
        self._address = _address_file(data)
        self._child = Child(
            ["broker", "--data", str(data)],
            name=f"the log in {data}",
            listen="127.0.0.1:0",
            messages=data.with_name("log.messages"),
        )
        self.bootstrap = self._child.address
        self._address.write_text(self.bootstrap)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def restarts(self) -> int:
        return self._child.restarts

    def check(self) -> bool:
        """Starts the broker again if it died; whether it had. Raises ConfigError if it cannot."""
        return self._child.check()

    def end(self) -> None:
        """Stops it cleanly, and insists if it does not; harmless when repeated."""
        self._address.unlink(missing_ok=True)
        self._child.end()
