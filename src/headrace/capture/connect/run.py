"""A capture by Debezium: a Connect worker of its own, started, asked how it is, and started again.

Each capture has its own process of Java, so that one that fails takes nothing else along. The topics of named
tables are created before the connector writes to them, as for our own readers; the connector's configuration,
its positions and its states are in topics of the capture. Whoever takes over the name of a capture fences
whoever had it: both write to the topic of its state now and then.
"""

import contextlib
import logging
import re
import secrets as random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.capture.change import TableSchema
from headrace.capture.connect.address import DebeziumAddress
from headrace.capture.connect.connector import Secrets, connector_config, history_topic
from headrace.capture.connect.settings import ConnectSettings, log_properties
from headrace.capture.connect.tables import describe, require_parts
from headrace.capture.connect.worker import ConnectorStatus, ConnectWorker
from headrace.capture.source import Lag
from headrace.capture.spec import CaptureSpec
from headrace.capture.state import CaptureState
from headrace.capture.status import State, Status, TableStatus
from headrace.capture.writer import Batch, CaptureWriter, topic_name
from headrace.client import Connection
from headrace.client.write import OutputRecord
from headrace.clock import Clock, SystemClock
from headrace.errors import ConfigError, FencedError, HeadraceError, RequestError, RetriableError

__all__ = ["ConnectRun", "connect_topics"]

_log = logging.getLogger(__name__)

_LOOK_S = 1.0
_OWN_S = 5.0
_DESCRIBE_S = 60.0  # Debezium does not say when columns change, and JDBC takes a process of Java to look
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 30.0
_SOUND_S = 60.0  # running for so long, a connector that fails is started again as soon as the first time
_LONGEST_ERROR = 500
_SECRETS_OF_LOG = ("sasl.jaas.config", "ssl.keystore.key")
_PREFIXES = (
    "",
    "producer.",
    "consumer.",
    "admin.",
)  # of a worker's settings: its own, and those of connectors


def connect_topics(name: str) -> list[str]:
    """The topics of such a capture other than those of its tables, and those that every capture has."""
    return [*_storage(name).values(), history_topic(name)]


def _storage(name: str) -> dict[str, str]:
    kinds = {"config": "configs", "offset": "offsets", "status": "status"}
    return {f"{kind}.storage.topic": topic_name(f"{name}.connect-{plural}") for kind, plural in kinds.items()}


class ConnectRun:
    """Runs one capture by Debezium until `stop`; `run` belongs to one thread, the other methods to any.

    The same contract as that of `CaptureRun`. Errors of the database, of the connector and of the log are
    tried again indefinitely, at most 30 s apart; a declaration that cannot work stops it, with the reason,
    until `resume`.
    """

    def __init__(
        self,
        spec: CaptureSpec,
        connection: Connection,
        *,
        paused: bool = False,
        on_status: Callable[[Status], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self.name = spec.name
        self._spec = spec
        self._connection = connection
        self._address = DebeziumAddress.parse(spec.url)
        self._writer = CaptureWriter(connection, spec.name, partitions=spec.partitions)
        self._on_status = on_status
        self._clock = clock or SystemClock()
        self._stopping = threading.Event()
        self._switched = threading.Event()
        self._paused = paused
        self._requests: list[str] = []
        self._met: set[str] = set()
        self._state = CaptureState()
        self._secrets = Secrets()
        self._worker: ConnectWorker | None = None
        self._failures = 0
        self._has_streamed = False
        self._last_error = ""
        self._schemas: Mapping[str, TableSchema] = {}
        self._sound_since = self._restart_at = self._owned_at = self._described_at = 0.0
        self.status = Status(
            name=spec.name, state="starting", at_ms=self._clock.now_ms(), url=self._address.shown,
            connector=self._address.kind,
        )  # fmt: skip

    # --- from any thread ----------------------------------------------------------------------

    def stop(self) -> None:
        """Makes `run` return once the connector has ended."""
        self._stopping.set()
        self._switched.set()

    def pause(self) -> None:
        """Ends the worker until `resume`; the database keeps the changes in the meantime."""
        self._paused = True
        self._switched.set()

    def resume(self) -> None:
        """Continues after `pause`, or after the capture stopped with a reason."""
        self._paused = False
        self._switched.set()

    @property
    def is_paused(self) -> bool:
        """Whether it has been paused."""
        return self._paused

    def resnapshot(self, tables: Sequence[str] = (), *, request: str = "") -> None:  # noqa: ARG002 - all of them
        """Has the connector forget its position, so that it reads all tables again; once for a `request`."""
        request = request or random.token_hex(8)
        if request not in self._met and request not in self._requests:
            self._requests.append(request)
            self._paused = False
            self._switched.set()

    # --- the loop -----------------------------------------------------------------------------

    def run(self) -> None:
        """Captures until `stop`; raises FencedError when another process has taken over the capture."""
        try:
            while not self._stopping.is_set():
                self._switched.clear()
                if self._stopping.is_set():
                    break
                if self._paused:
                    self._close()
                    self._say("paused")
                    self._switched.wait()
                else:
                    self._attempt()
        finally:
            self._close()

    def _attempt(self) -> None:
        try:
            self._open()
            while not self._switched.wait(_LOOK_S):
                self._look()
        except FencedError:
            raise
        except ConfigError as error:
            self._close()
            self._fail(str(error), "stopped")
            self._switched.wait()
        except HeadraceError as error:
            self._close()
            self._fail(str(error), "reconnecting")
            self._switched.wait(self._pause_s())

    def _open(self) -> None:
        """Takes the name over, creates the topics, and has a worker run the connector."""
        if self._worker is None:
            self._say("starting")
            require_parts(self._address)
            self._state = self._writer.open()
            self._schemas = {}
            self._describe()
            config = self._config()
            self._worker = self._started()
            self._worker.put(self.name, config)
            self._has_streamed, self._restart_at = False, 0.0
        self._take_requests(self._worker)

    def _describe(self) -> None:
        """Writes the columns of tables that are new or have changed; ConfigError if a named table is gone."""
        found = describe(self._spec)
        changed = [each for table, each in found.items() if self._schemas.get(table) != each]
        self._own(self._writer.announce(changed))
        self._schemas, self._described_at = found, time.monotonic()

    def _describe_again(self) -> None:
        """The same while the connector runs, which says itself if the database cannot be reached."""
        self._described_at = time.monotonic()
        try:
            self._describe()
        except FencedError:
            raise
        except HeadraceError as error:
            _log.info("capture %s: its tables could not be looked at: %s", self.name, error)

    def _config(self) -> dict[str, str]:
        """The connector's configuration; what is secret in it is in `_secrets` instead."""
        self._secrets = Secrets()
        log = {
            key: self._secrets.placeholder(f"log.{key}", value) if key in _SECRETS_OF_LOG else value
            for key, value in log_properties(self._connection).items()
        }
        servers = self._connection.bootstrap_servers
        return connector_config(self._spec, self._address, log, self._secrets, bootstrap_servers=servers)

    def _started(self) -> ConnectWorker:
        log = log_properties(self._connection)
        properties = {f"{prefix}{key}": value for prefix in _PREFIXES for key, value in log.items()}
        settings = ConnectSettings(
            bootstrap_servers=self._connection.bootstrap_servers,
            name=f"headrace-capture-{self.name}",
            kind=self._address.kind,
            properties={**properties, **_storage(self.name)},
            secrets=self._secrets.values,
        )
        try:
            return ConnectWorker(settings, on_line=self._heard).start()
        except ConfigError as error:  # the log may have gone away meanwhile
            raise RetriableError(self._secrets.hidden(str(error))) from None

    def _heard(self, line: str) -> None:
        """A line of the worker's log; in its thread."""
        shown = self._secrets.hidden(line)
        _log.warning("%s", shown)
        if " ERROR " in shown:
            self._last_error = shown.partition(" ERROR ")[2][:_LONGEST_ERROR]

    def _close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
        with contextlib.suppress(HeadraceError):
            self._writer.close()

    def _own(self, records: Iterable[OutputRecord] = ()) -> None:
        """Writes the capture's state: raises FencedError if somebody else has the name now."""
        self._owned_at = time.monotonic()
        self._state = self._writer.write(Batch(state=self._state, records=iter(records)))

    def _take_requests(self, worker: ConnectWorker) -> None:
        for request in list(self._requests):
            if request != self._state.request:
                worker.read_again(self.name)
                self._state = replace(self._state, request=request)
                self._own()
            self._met.add(request)
            self._requests.remove(request)

    # --- how it is ----------------------------------------------------------------------------

    def _look(self) -> None:
        """Asks the worker how the connector is, has it started again if it failed, and says so."""
        worker, now = self._worker, time.monotonic()
        assert worker is not None
        if now - self._described_at >= _DESCRIBE_S:
            self._describe_again()
        elif now - self._owned_at >= _OWN_S:
            self._own()
        if not worker.is_ready:
            self._fail("the Connect worker ended, and is being started again", "reconnecting")
            return
        try:
            status, progress = worker.status(self.name), worker.progress()
        except RetriableError as error:
            self._fail(str(error), "reconnecting")
            return
        except RequestError:  # it is about to be started
            self._say("starting")
            return
        self._judge(worker, status, progress, now)

    def _judge(
        self, worker: ConnectWorker, status: ConnectorStatus, progress: Mapping[str, Any], now: float
    ) -> None:
        if status.failure is not None:
            self._fail(self._secrets.hidden(cause_of(status.failure)), "reconnecting", progress)
            self._start_again(worker, now)
        elif not status.is_running:
            self._say("starting", progress)
        elif progress.get("SnapshotRunning"):
            self._sound("snapshot", progress, now)
        elif progress.get("Connected"):
            self._has_streamed = True
            self._sound("streaming", progress, now)
        elif self._has_streamed:
            self._fail(self._last_error or "the connector has lost the database", "reconnecting", progress)
        else:
            self._say("starting", progress)

    def _start_again(self, worker: ConnectWorker, now: float) -> None:
        if not self._restart_at:
            self._restart_at = now + self._pause_s()
        elif now >= self._restart_at:
            self._restart_at = 0.0
            worker.restart(self.name)

    def _sound(self, state: State, progress: Mapping[str, Any], now: float) -> None:
        self._restart_at, self._last_error = 0.0, ""
        if self.status.state != state:
            self._sound_since = now
        elif now - self._sound_since > _SOUND_S:
            self._failures = 0
        self.status = replace(self.status, error=None, error_at_ms=None)
        self._say(state, progress)

    def _pause_s(self) -> float:
        pause_s: float = min(_FIRST_PAUSE_S * 2**self._failures, _LONGEST_PAUSE_S)
        self._failures = min(self._failures + 1, 10)
        return pause_s

    def _fail(self, reason: str, state: State, progress: Mapping[str, Any] | None = None) -> None:
        reason = reason[:_LONGEST_ERROR]
        again = self.status.state == state and self.status.error == reason
        if not again:
            _log.info("capture %s: %s", self.name, reason)
            reconnects = self.status.reconnects + (state == "reconnecting" != self.status.state)
            self.status = replace(
                self.status, error=reason, error_at_ms=self._clock.now_ms(), reconnects=reconnects
            )
        self._say(state, progress)

    def _say(self, state: State, progress: Mapping[str, Any] | None = None) -> None:
        said = progress or {}
        behind_ms = said.get("MilliSecondsBehindSource")
        changes = max(said.get("TotalNumberOfEventsSeen") or 0, 0)
        moved = changes > self.status.changes
        now_ms = self._clock.now_ms()
        self.status = replace(
            self.status,
            state=state,
            at_ms=now_ms,
            changes=max(changes, self.status.changes) if progress is None else changes,
            last_change_ms=now_ms if moved else self.status.last_change_ms,
            lag=Lag(seconds=behind_ms / 1000) if behind_ms is not None and behind_ms >= 0 else Lag(),
            tables=self._tables(said) or self.status.tables,
        )
        self._on_status(self.status)

    def _tables(self, progress: Mapping[str, Any]) -> dict[str, TableStatus]:
        """Rows that the snapshot has read, by table, as far as the connector tells."""
        phase = "rows" if progress.get("SnapshotRunning") else "done"
        scanned = progress.get("RowsScanned") or {}
        database = f"{self._address.name}."
        rows = {table.removeprefix(database) if table.count(".") > 1 else table: count
                for table, count in scanned.items()}  # fmt: skip
        return {table: TableStatus(phase=phase, rows=count) for table, count in sorted(rows.items())}


def cause_of(trace: str) -> str:
    """The innermost cause that a Java trace names, as a sentence."""
    lines = [each for each in trace.splitlines() if each[:1] not in ("", " ", "\t")]
    causes = [each.removeprefix("Caused by: ") for each in lines if each.startswith("Caused by: ")]
    said = causes[-1] if causes else (lines or ["it gave no reason"])[0]
    return re.sub(r"^[\w.$]+(?:Exception|Error|Failure): ", "", said)
