"""Opens the shop: starts its log, application, traffic and receivers, and stops them in order."""

import contextlib
import json
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace.app.processes import EmbeddedLog, free_address
from headrace.capture import Catalog
from headrace.client import Connection, RawFetcher
from headrace.demo.checks import Ends, HookCounts, TrafficTotals, hook_counts
from headrace.demo.customers import create_customers
from headrace.demo.display import Display
from headrace.demo.monitor import SEARCH_FILE, log_ends
from headrace.demo.processes import SupervisedProcess, Supervisor
from headrace.demo.receivers import Receivers
from headrace.errors import ConfigError
from headrace.local_postgres import USER, LocalPostgres

__all__ = ["APPLICATION", "HISTORY_S", "Shop", "ShopOptions", "demo_folder", "open_shop"]

APPLICATION = Path(__file__).with_name("shop.py")
HISTORY_S = 12 * 60
_SEED = 7
_MARK = "demo.json"
_CAPTURE = "shop"  # as the application calls it
_CONSOLE = "127.0.0.1:8080"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopOptions:
    """How to open a shop; without `connection`, a log is started, and with `postgres`, a PostgreSQL."""

    folder: Path
    rate: int
    connection: Connection | None = None
    postgres: bool = False


@dataclass(slots=True, kw_only=True)
class Shop:
    """Everything that runs.

    `database` is the URL of the one with the customers. `starts` and `hooks_before` are the ends of
    the topics and the counts of the hooks before the traffic began; `log_s` and `running_s` are when
    the log and the queries had started.
    """

    display: Display
    folder: Path
    connection: Connection
    database: str
    starts: Ends
    hooks_before: HookCounts
    fetcher: RawFetcher
    receivers: Receivers
    cleanup: contextlib.ExitStack
    totals: TrafficTotals = field(default_factory=TrafficTotals)
    has_result: threading.Event = field(default_factory=threading.Event)
    log_s: float = 0.0
    running_s: float = 0.0
    console: str | None = None
    supervisor: Supervisor = field(init=False)
    traffic: SupervisedProcess = field(init=False)

    @property
    def environment(self) -> dict[str, str]:
        """What the application reads."""
        index = self.folder.resolve() / SEARCH_FILE
        own = {"SHOP_DATABASE": self.database, "SHOP_SEARCH": f"sqlite:///{index}"}
        return {**own, **self.receivers.environment, **self.connection.environment()}


@contextlib.contextmanager
def demo_folder(data: Path | None, *, postgres: bool = False) -> Iterator[Path]:
    """The folder `data`, which must be empty or of an earlier demo of the kind, or a temporary one.

    Raises ConfigError if it contains anything else.
    """
    if data is None:
        with _temporary() as folder:
            yield folder
        return
    data.mkdir(parents=True, exist_ok=True)
    if any(data.iterdir()) and not (data / _MARK).exists():
        raise ConfigError(
            f"{data} is not empty, and not the folder of an earlier demo; name another folder, or none to "
            "use a temporary one"
        )
    database = "PostgreSQL" if postgres else "SQLite"
    earlier = json.loads((data / _MARK).read_text()).get("database") if (data / _MARK).exists() else None
    if earlier not in (None, database):
        raise ConfigError(
            f"{data} is of a demo whose customers are in {earlier}, not in {database}; name another "
            f"folder, or run it {'without' if postgres else 'with'} --postgres"
        )
    (data / _MARK).write_text(json.dumps({"application": "shop", "database": database}))
    yield data


@contextlib.contextmanager
def _temporary() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def open_shop(options: ShopOptions, display: Display) -> Iterator[Shop]:
    """Starts everything, restarts what dies, and stops it in reverse order."""
    with contextlib.ExitStack() as cleanup:
        cleanup.callback(display.say, "everything is stopped", "stopped")
        log, connection = None, options.connection
        if connection is None:
            log = EmbeddedLog(options.folder / "log")
            cleanup.callback(log.end)
            connection = Connection(bootstrap_servers=log.bootstrap)
        address, by = connection.bootstrap_servers, f" (process {log.pid})" if log else ""
        display.say(f"log: {address}{by}", "log", bootstrap=address, pid=log.pid if log else None)
        server, database = _open_database(options, connection, display, cleanup)
        receivers = Receivers()
        cleanup.callback(receivers.close)
        fetcher = cleanup.enter_context(RawFetcher(connection))
        shop = Shop(
            display=display,
            folder=options.folder,
            connection=connection,
            database=database,
            starts=log_ends(fetcher),
            hooks_before=hook_counts(connection),
            fetcher=fetcher,
            receivers=receivers,
            cleanup=cleanup,
            log_s=display.seconds,
        )
        application = _start_application(shop)
        shop.traffic = _start_traffic(shop, options.rate)
        shop.supervisor = Supervisor(lambda text: display.say(text, "restart"))
        cleanup.callback(shop.supervisor.stop)
        if log is not None:
            shop.supervisor.add(lambda: _check_log(log))
        if server is not None:
            shop.supervisor.add(lambda: _check_server(server))
        shop.supervisor.add(application.check)
        shop.supervisor.add(shop.traffic.check)
        yield shop


def _check_log(log: EmbeddedLog) -> str | None:
    return f"the log died and was restarted (process {log.pid})" if log.check() else None


def _open_database(
    options: ShopOptions, connection: Connection, display: Display, cleanup: contextlib.ExitStack
) -> tuple[LocalPostgres | None, str]:
    """The database with the shop's customers: its server, if it has one, and its URL."""
    server = None
    if options.postgres:
        secret = _secret(options.folder.resolve() / "postgres.password")
        server = LocalPostgres(secret.read_text(), folder=options.folder.resolve() / "postgres")
        cleanup.enter_context(server)
        url = f"postgresql://{USER}@127.0.0.1:{server.port}/postgres?password=file:{secret}"
        text = f"database: PostgreSQL {server.version} at 127.0.0.1:{server.port} (process {server.pid})"
        display.say(text, "database", pid=server.pid, url=url)
    else:
        url = f"sqlite:///{options.folder.resolve() / 'shop.db'}"
        display.say(f"database: {url}", "database", url=url)
    is_new = create_customers(url, datetime.now(UTC) - 2 * timedelta(seconds=HISTORY_S))
    if is_new and options.connection is not None:
        _read_again(connection)
    return server, url


def _secret(path: Path) -> Path:
    """The file with the password of the shop's own server."""
    if not path.exists():
        path.touch(0o600)
        path.write_text(secrets.token_urlsafe())
    return path


def _read_again(connection: Connection) -> None:
    """Has the capture of an earlier demo on this log go on with the customers of this one's database."""
    with contextlib.closing(Catalog(connection)) as catalog:
        if _CAPTURE in catalog.refresh():
            catalog.resnapshot(_CAPTURE, ())


def _check_server(server: LocalPostgres) -> str | None:
    if server.is_running:
        return None
    server.start()
    return f"PostgreSQL died and was restarted (process {server.pid})"


def _start_application(shop: Shop) -> SupervisedProcess:
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
    child = SupervisedProcess(
        "the application",
        [
            *(sys.executable, "-m", "headrace", "run", *arguments),
            *("--http", _console_address(), "--json", "--until-stdin-closes"),
        ],
        messages=shop.folder / "run.messages",
        on_line=on_line,
        is_progress=lambda line: "batch_id" in line,
        environment=shop.environment,
        when_refused="The demo starts afresh in another folder (--data)",
    )
    shop.cleanup.callback(child.end)
    text = f"application: headrace run {APPLICATION.name} (process {child.pid})"
    shop.display.say(text, "application", pid=child.pid)
    return child


def _console_address() -> str:
    """Port 8080, or a free one, which stays the same over restarts."""
    host, _, port = free_address(_CONSOLE).rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, int(port)))
        return f"{host}:{probe.getsockname()[1]}"


def _start_traffic(shop: Shop, rate: int) -> SupervisedProcess:
    arguments = ["--bootstrap", shop.connection.bootstrap_servers, "--rate", str(rate), "--seed", str(_SEED)]
    child = SupervisedProcess(
        "the traffic",
        [
            *(sys.executable, "-m", "headrace.demo.produce", *arguments),
            *("--history-seconds", str(HISTORY_S), "--customers", shop.database),
        ],
        messages=shop.folder / "traffic.messages",
        on_line=shop.totals.note,
        environment=shop.connection.environment(),
    )
    shop.cleanup.callback(child.end)
    text = (
        f"traffic: {rate:,} events per second, starting with those of the last {HISTORY_S // 60} minutes "
        f"(process {child.pid})"
    )
    shop.display.say(text, "traffic", pid=child.pid)
    return child
