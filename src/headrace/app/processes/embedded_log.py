"""The embedded log: a broker in a child process, restarted when it dies, at an address that it keeps."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from headrace.addresses import is_taken
from headrace.app.options import RunOptions
from headrace.app.processes.supervisor import ChildProcess
from headrace.app.status.log_address import keep_address, last_address
from headrace.errors import ConfigError

__all__ = ["EmbeddedLog", "start_log"]

_ANY = "127.0.0.1:0"


class EmbeddedLog:
    """`headrace broker` on loopback, restarted on the same port if it dies.

    It listens at `listen`, else where it last did, else on a free port. If another process has
    taken its last port meanwhile, it takes a free one and says so. Raises ConfigError if it
    cannot start, or cannot listen at the address that was given.
    """

    def __init__(
        self, data: Path, listen: str | None = None, say: Callable[[str], None] = lambda _: None
    ) -> None:
        last = None if listen is not None else last_address(data)
        try:
            self._child = _start(data, listen or last or _ANY)
        except ConfigError:
            if last is None or not is_taken(last):
                raise
            self._child = _start(data, _ANY)
            say(
                f"{last}, where the log used to listen, is taken by another process: it now listens at "
                f"{self._child.address}; stop that process, or choose an address with --log HOST:PORT"
            )
        self.bootstrap = self._child.address
        keep_address(data, self.bootstrap)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def restarts(self) -> int:
        return self._child.restarts

    def check(self) -> bool:
        """Restarts the broker if it has died; True if it had. Raises ConfigError if it cannot."""
        return self._child.check()

    def end(self) -> None:
        """Stops it cleanly, or kills it if it does not stop; harmless when repeated."""
        self._child.end()


def start_log(
    options: RunOptions,
    cleanup: contextlib.ExitStack,
    say: Callable[[str], None] = lambda _: None,
) -> EmbeddedLog:
    """The embedded log of a run, in a folder of its own."""
    log = EmbeddedLog(options.data / "log", options.log, say)
    cleanup.callback(log.end)
    return log


def _start(data: Path, listen: str) -> ChildProcess:
    return ChildProcess(
        ["broker", "--data", str(data)],
        name=f"the log in {data}",
        listen=listen,
        messages=data.with_name("log.messages"),
    )
