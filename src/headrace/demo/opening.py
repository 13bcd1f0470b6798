"""Opens the shop: starts its log, its application, its traffic and who is told, and ends them in order."""

import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.app.console_process import free_address
from headrace.app.log_process import EmbeddedLog
from headrace.client import Connection, RawFetcher
from headrace.demo.display import Display
from headrace.demo.judging import Ends
from headrace.demo.processes import Keeper, KeptProcess
from headrace.demo.receivers import Receivers
from headrace.demo.sent import Sent
from headrace.demo.telling import Told, hook_counts
from headrace.demo.watching import log_ends

__all__ = ["APPLICATION", "HISTORY_S", "Opening", "Shop", "open_shop"]

APPLICATION = Path(__file__).with_name("shop.py")
HISTORY_S = 12 * 60
_SEED = 7
_CONSOLE = "127.0.0.1:8080"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a shop is opened with; without `connection`, a log is started."""

    folder: Path
    rate: int
    connection: Connection | None = None


@dataclass(slots=True, kw_only=True)
class Shop:
    """Everything that runs.

    `starts` and `told_before` are how it was before the traffic began; `log_s` and
    `running_s` when the log and the queries had been started.
    """

    display: Display
    folder: Path
    connection: Connection
    starts: Ends
    told_before: Told
    fetcher: RawFetcher
    receivers: Receivers
    ending: contextlib.ExitStack
    sent: Sent = field(default_factory=Sent)
    has_result: threading.Event = field(default_factory=threading.Event)
    log_s: float = 0.0
    running_s: float = 0.0
    console: str | None = None
    keeper: Keeper = field(init=False)
    traffic: KeptProcess = field(init=False)


@contextlib.contextmanager
def open_shop(opening: Opening, display: Display) -> Iterator[Shop]:
    """Starts everything, keeps it alive, and ends it in reverse order."""
    with contextlib.ExitStack() as ending:
        ending.callback(display.say, "everything is stopped", "stopped")
        log, connection = None, opening.connection
        if connection is None:
            log = EmbeddedLog(opening.folder / "log")
            ending.callback(log.end)
            connection = Connection(bootstrap_servers=log.bootstrap)
        address, by = connection.bootstrap_servers, f" (process {log.pid})" if log else ""
        display.say(f"log: {address}{by}", "log", bootstrap=address, pid=log.pid if log else None)
        receivers = Receivers()
        ending.callback(receivers.close)
        fetcher = ending.enter_context(RawFetcher(connection))
        shop = Shop(
            display=display,
            folder=opening.folder,
            connection=connection,
            starts=log_ends(fetcher),
            told_before=hook_counts(connection),
            fetcher=fetcher,
            receivers=receivers,
            ending=ending,
            log_s=display.seconds,
        )
        application = _start_application(shop)
        shop.traffic = _start_traffic(shop, opening.rate)
        shop.keeper = Keeper(lambda text: display.say(text, "restart"))
        ending.callback(shop.keeper.stop)
        if log is not None:
            shop.keeper.add(lambda: _check_log(log))
        shop.keeper.add(application.check)
        shop.keeper.add(shop.traffic.check)
        yield shop


def _check_log(log: EmbeddedLog) -> str | None:
    return f"the log had died and was started again (process {log.pid})" if log.check() else None


def _start_application(shop: Shop) -> KeptProcess:
    def on_line(line: dict[str, Any]) -> None:
        message = str(line.get("message", ""))
        if message.startswith("console: "):
            shop.console = message.split()[1]
        if message.startswith("running "):
            shop.running_s = shop.display.seconds
        if message:
            shop.display.say(f"application: {message}", "application")
        elif any(line.get("changed", {}).values()):
            shop.has_result.set()

    arguments = [
        str(APPLICATION),
        "--bootstrap",
        shop.connection.bootstrap_servers,
        "--data",
        str(shop.folder),
    ]
    child = KeptProcess(
        "the application",
        [
            *(sys.executable, "-m", "headrace", "run", *arguments),
            *("--http", _console_address(), "--json", "--until-stdin-closes"),
        ],
        messages=shop.folder / "run.messages",
        on_line=on_line,
        is_fruit=lambda line: "batch_id" in line,
        environment={**shop.receivers.environment, **shop.connection.environment()},
    )
    shop.ending.callback(child.end)
    text = f"application: headrace run {APPLICATION.name} (process {child.pid})"
    shop.display.say(text, "application", pid=child.pid)
    return child


def _console_address() -> str:
    """Port 8080, or one that is free; always the same for this demonstration, also over restarts."""
    host, _, port = free_address(_CONSOLE).rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, int(port)))
        return f"{host}:{probe.getsockname()[1]}"


def _start_traffic(shop: Shop, rate: int) -> KeptProcess:
    arguments = ["--bootstrap", shop.connection.bootstrap_servers, "--rate", str(rate), "--seed", str(_SEED)]
    child = KeptProcess(
        "the traffic",
        [sys.executable, "-m", "headrace.demo.produce", *arguments, "--history-seconds", str(HISTORY_S)],
        messages=shop.folder / "traffic.messages",
        on_line=shop.sent.note,
        environment=shop.connection.environment(),
    )
    shop.ending.callback(child.end)
    text = (
        f"traffic: {rate:,} events a second, beginning with those of the last {HISTORY_S // 60} minutes "
        f"(process {child.pid})"
    )
    shop.display.say(text, "traffic", pid=child.pid)
    return child
