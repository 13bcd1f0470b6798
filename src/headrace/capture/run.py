"""The loop of a capture: changes as they come, a chunk of a snapshot in between, for as long as it runs.

Each round writes one transaction of the log: whole transactions of the source, then the rows
of a chunk that no change has replaced meanwhile, then the state. Before the first of them come the
rows of a first load, where the source has one (`loading`). No other state is kept; after a failure of
either side both are opened again, and it says where to continue.
"""

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import chain

from headrace.capture.change import (
    Change,
    ChangeBlock,
    EncodedChanges,
    Item,
    Position,
    Resnapshot,
    RowBlock,
    TableSchema,
    Transaction,
)
from headrace.capture.envelope import Envelope
from headrace.capture.live_keys import LiveKeys
from headrace.capture.loading import TableLoad
from headrace.capture.outbox import event_of
from headrace.capture.snapshot import PendingChunk
from headrace.capture.source import Lag, Source, SourceChanged, TablesGone
from headrace.capture.state import CaptureState
from headrace.capture.status import Lags, Rates, State, Status, table_status
from headrace.capture.writer import Batch, CaptureWriter, table_topic
from headrace.client.write import OutputRecord, RecordBlock, TransactionExpired
from headrace.clock import Clock, SystemClock
from headrace.errors import FencedError, HeadraceError, RequestError, RetriableError

__all__ = ["CaptureRun"]

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
_WAIT_S = 0.5
_STATUS_S = 1.0
_ALIVE_S = 5.0
_MOST_CHANGES = 20_000  # of one transaction of the log, unless one of the source has more
_LONGEST_BATCH_S = 0.25
_MOST_EXPIRED = 2  # in a row: a transaction that a pause has delayed fits the next time


class CaptureRun:
    """Runs one capture until `stop`; `run` belongs to one thread, the other methods to any.

    `takes_all` says that the source has whatever tables there are, so that one which is missing at a start
    was not taken out by anybody. `on_status` gets the status whenever its state changes, and about once a
    second. `run`
    returns when it was stopped, and raises FencedError when another process has taken over the
    capture. An error that retrying cannot cure leaves the capture in the state
    "stopped", with the reason, until `resume` or `resnapshot`.
    """

    def __init__(
        self,
        name: str,
        open_source: Callable[[], Source],
        writer: CaptureWriter,
        *,
        outbox: Collection[str] = (),
        chunk_rows: int = 10_000,
        takes_all: bool = False,
        paused: bool = False,
        on_status: Callable[[Status], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._open_source = open_source
        self._writer = writer
        self._outbox = frozenset(outbox)
        self._chunk_rows = chunk_rows
        self._takes_all = takes_all
        self._gone: frozenset[str] = frozenset()
        self._found_gone: TablesGone | None = None
        self._given_up: frozenset[str] = frozenset()
        self._on_status = on_status
        self._clock = clock or SystemClock()
        self._stopping = threading.Event()
        self._switched = threading.Event()
        self._paused = paused
        self._requests: dict[str, Sequence[str]] = {}
        self._met: set[str] = set()
        self.status = Status(name=name, state="starting", at_ms=self._clock.now_ms())
        self._state = CaptureState()
        self._source: Source | None = None
        self._envelope: Envelope | None = None
        self._load: TableLoad | None = None
        self._pending: PendingChunk | None = None
        self._live: tuple[str, LiveKeys] | None = None
        self._rates = Rates()
        self._lags = Lags(self._clock.now_ms())
        self._committed_us = 0
        self._totals: dict[str, int | None] = {}
        self._said_at = 0.0
        self._failures = self._expirations = 0
        self._is_other = False  # the source has said so, whether it noticed at its start or later
        self._asked = False  # to read tables again, and nothing was written since

    # --- from any thread ----------------------------------------------------------------------

    def stop(self) -> None:
        """Makes `run` return after the transaction under way."""
        self._stopping.set()
        self._switched.set()

    def pause(self) -> None:
        """Closes the source until `resume`; the database keeps the changes in the meantime."""
        self._paused = True
        self._switched.set()

    def resume(self) -> None:
        """Continues after `pause`, or after the capture stopped with a reason.

        After a stop because tables are gone, of a capture that takes all tables, without them.
        """
        self._given_up = self._gone
        self._paused = False
        self._switched.set()

    @property
    def is_paused(self) -> bool:
        """Whether it has been paused."""
        return self._paused

    def resnapshot(self, tables: Sequence[str] = (), *, request: str = "") -> None:
        """Reads these tables again from the beginning (all, if none is named), and follows changes meanwhile.

        Rows of the topic that a table no longer has are deleted there. Also continues after a stop
        because changes were lost. A `request` that any process has already carried out is not
        carried out again.
        """
        request = request or secrets.token_hex(8)
        if request in self._met or request in self._requests:
            return
        self._requests[request] = tuple(tables)
        self._paused = False
        self._switched.set()

    # --- the loop -----------------------------------------------------------------------------

    def run(self) -> None:
        """Captures until `stop`."""
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
        """Opens both sides and captures until something happens; decides what to do then."""
        try:
            self._open()
            if self._requests:
                self._take_requests()
            while not self._switched.is_set():
                self._round()
        except FencedError:
            raise
        except _Interrupted:
            self._close()
        except TransactionExpired as error:
            self._expired(error)
        except RetriableError as error:
            self._try_again(str(error))
        except SourceChanged as error:
            self._is_other = True
            if self._asked:
                self._close()
                self._requests[secrets.token_hex(8)] = ()
            else:
                self._stop_with(str(error))
        except TablesGone as error:
            self._gone |= frozenset(error.tables)
            self._stop_with(str(error))
        except HeadraceError as error:
            self._stop_with(str(error))

    def _expired(self, error: TransactionExpired) -> None:
        """A transaction of the source took longer to write than the log allows: again, or never."""
        self._expirations += 1
        if self._expirations < _MOST_EXPIRED:
            self._try_again(f"{error}; it is written again")
            return
        self._expirations = 0
        self._stop_with(
            f"a transaction of the database takes longer to write than the {error.timeout_ms / 1000:g} s "
            "that the log allows: raise transaction_max_timeout_ms of the log (transaction.max.timeout.ms "
            f"in Kafka), then `headrace capture resume {self.name}`"
        )

    def _try_again(self, reason: str) -> None:
        self._close()
        self._fail(reason, "reconnecting")
        pause_s = min(_FIRST_PAUSE_S * 2**self._failures, _LONGEST_PAUSE_S)
        self._failures += 1
        self._switched.wait(pause_s)

    def _stop_with(self, reason: str) -> None:
        self._close()
        self._fail(reason, "stopped")
        self._switched.wait()

    def _open(self) -> None:
        if self._source is not None:
            return
        state = self._writer.open()
        requests = self._unmet(state)
        self._asked = bool(requests)
        source, position, is_other = self._connect(state, self._asked)
        self._source, schemas = source, source.schemas()
        gone = [each for each in state.tables if each not in schemas and each not in self._given_up]
        if gone and self._takes_all:
            raise TablesGone(gone, are_named=False)
        self._gone = frozenset()
        known = {each for each in schemas if table_topic(self.name, each) in state.offsets}
        is_new = state.position is None or is_other
        state = replace(state, position=position).with_tables(schemas, known)
        state = self._begun_again(_with_requests(state, {**requests, "": ()} if is_other else requests))
        self._envelope = Envelope(
            connector=source.connector, name=self.name, database=source.database, version=version("headrace")
        )
        self._totals = {}
        if is_new:
            self._load = self._first_load(source, state, schemas)
        begun = self._load.begun(state) if self._load is not None else state
        self._state = self._writer.write(Batch(state=begun, records=self._writer.announce(schemas.values())))
        self._note_met(requests)
        self._failures = 0
        self.status = replace(self.status, error=None, error_at_ms=None)
        self._say(self._running_state())

    def _connect(self, state: CaptureState, may_restart: bool) -> tuple[Source, Position, bool]:
        """A source that reads on from the state's position; or, if changes were lost and all
        tables may be read again, from now on, and then True."""
        is_other, self._is_other = self._is_other, False
        if not (is_other and may_restart):
            source = self._open_source()
            try:
                return source, source.connect(state.position), False
            except SourceChanged:
                source.close()
                if not may_restart:
                    raise
            except BaseException:
                source.close()
                raise
        source = self._open_source()
        try:
            return source, source.connect(None), True
        except BaseException:
            source.close()
            raise

    def _first_load(
        self, source: Source, state: CaptureState, schemas: Mapping[str, TableSchema]
    ) -> TableLoad | None:
        """What the source can read of whole tables; those without keys only once."""
        keyless = [
            name for name, schema in schemas.items() if not schema.key and not state.tables[name].again
        ]
        keyed = [name for name, schema in schemas.items() if schema.key]
        load = source.first_load([*keyless, *keyed])
        if load is None:
            return None
        self._totals = {each: source.count(each) for each in (*keyless, *keyed)}
        return TableLoad(load, position=state.position, keyless=keyless)

    def _begun_again(self, state: CaptureState) -> CaptureState:
        """The state with tables at their beginning whose first load has ended before they were whole."""
        begun = state.without_loads()
        for table in state.tables:
            if begun.tables[table] != state.tables[table]:
                _log.warning(
                    "capture %s: the first load of %s ended before it was whole, and cannot be resumed: the "
                    "table is read again from its beginning, in chunks", self.name, table
                )  # fmt: skip
        return begun

    def _close(self) -> None:
        self._load = self._found_gone = None
        self._forget_snapshot()
        self._writer.close()
        source, self._source = self._source, None
        if source is not None:
            with contextlib.suppress(HeadraceError):
                source.close()

    def _forget_snapshot(self) -> None:
        """Forgets what was read and is not written."""
        self._pending = None
        self._forget_live()

    def _forget_live(self) -> None:
        if self._live is not None:
            self._live[1].close()
        self._live = None

    def _take_requests(self) -> None:
        """Reads tables again without interrupting the stream."""
        requests = self._unmet(self._state)
        self._forget_snapshot()
        if requests:
            self._state = self._writer.write(Batch(state=_with_requests(self._state, requests)))
        self._note_met(requests)

    def _unmet(self, state: CaptureState) -> dict[str, Sequence[str]]:
        """The requests that no run has carried out so far."""
        for each in [each for each in self._requests if each == state.request]:
            self._note_met([each])
        return dict(self._requests)

    def _note_met(self, requests: Iterable[str]) -> None:
        for each in list(requests):
            self._met.add(each)
            self._requests.pop(each, None)

    def _round(self) -> None:
        """One transaction of the log, if there is anything to write."""
        assert self._source is not None
        if self._load is not None:
            self._load_some(self._load)
            return
        if self._pending is None:
            self._pending = self._read_chunk(self._source)
        waiting = self._pending is not None and self._pending.is_reached(self._state.position)
        transactions = iter(self._source.transactions(0 if waiting else _WAIT_S))
        first = next(transactions, None) if not waiting else None
        if first is not None or waiting:
            self._write(chain([first], transactions) if first is not None else ())
        if time.monotonic() - self._said_at >= _STATUS_S:
            self._say(self._running_state())

    def _load_some(self, load: TableLoad) -> None:
        """One transaction of the log with rows of the first load."""
        batch = Batch(state=self._state)
        batch.records = self._loaded(batch, load)
        self._state = self._writer.write(batch)
        if load.is_done:
            load.close()
            self._load = None

    def _loaded(self, batch: Batch, load: TableLoad) -> Iterator[OutputRecord | RecordBlock]:
        """Rows as they come, for a moment, or as long as they have to be written at once."""
        envelope, began = self._envelope, time.monotonic()
        assert envelope is not None
        now_ms = self._clock.now_ms()
        while True:
            if load.is_held and (self._stopping.is_set() or self._paused):
                raise _Interrupted
            read = load.next(_WAIT_S)
            if read is not None:
                counted = _Counted()
                yield from self._snapshot_rows(read.table, read.rows, envelope, load.read_us, now_ms, counted)
                batch.state = load.advanced(batch.state, read, counted.rows)
            if time.monotonic() - self._said_at >= _STATUS_S:
                self._say(self._running_state(), progress=batch.state)
            if load.is_done or not (load.is_held or time.monotonic() - began < _LONGEST_BATCH_S):
                break
        batch.transaction_id, batch.committed_us = f"snapshot:{load.read_us}", load.read_us

    def _write(self, transactions: Iterable[Transaction]) -> None:
        assert self._source is not None
        batch = Batch(state=self._state)
        batch.records = self._records(batch, transactions)
        before, self._state = self._state, self._writer.write(batch)
        self._asked = False
        if self._state.position != before.position:
            self._expirations = 0
        if batch.changes:
            changes = self.status.changes + batch.changes
            self.status = replace(self.status, changes=changes, last_change_ms=self._clock.now_ms())
        assert self._state.position is not None
        self._source.acknowledge(self._state.position)
        error, self._found_gone = self._found_gone, None
        if error is not None:
            raise error

    def _records(
        self, batch: Batch, transactions: Iterable[Transaction]
    ) -> Iterator[OutputRecord | RecordBlock]:
        """Everything of a batch; `batch` is complete when this has ended."""
        envelope, began = self._envelope, time.monotonic()
        assert envelope is not None
        for transaction in self._until_gone(transactions):
            yield from self._transaction(batch, envelope, transaction)
            if self._pending is not None and self._pending.is_reached(transaction.position):
                break
            long = time.monotonic() - began > _LONGEST_BATCH_S
            if long or batch.changes >= _MOST_CHANGES:
                break
        if self._pending is not None and self._pending.is_reached(batch.state.position):
            yield from self._chunk(batch, envelope, self._pending)
            self._pending = None

    def _until_gone(self, transactions: Iterable[Transaction]) -> Iterator[Transaction]:
        """The transactions before the one that a table is gone by, which is said once they are written."""
        try:
            yield from transactions
        except TablesGone as error:
            self._found_gone = error

    def _transaction(
        self, batch: Batch, envelope: Envelope, transaction: Transaction
    ) -> Iterator[OutputRecord | RecordBlock]:
        envelope.begin(transaction.id, transaction.committed_us)
        pending, now_ms, at_ms = self._pending, self._clock.now_ms(), transaction.committed_us // 1000
        if pending is not None:
            pending.begin(transaction)
        for item in self._without_blocks(transaction.changes, envelope, now_ms):
            self._say_alive()
            if isinstance(item, EncodedChanges):
                topics = {number: self._writer.topic(table) for number, table in item.tables.items()}
                yield RecordBlock(item.octets, item.numbers, item.count, topics, at_ms)
            elif isinstance(item, Change):
                if not self._writer.is_announced(item.table):
                    continue
                if pending is not None:
                    item = pending.note(item)
                if self._live is not None:
                    self._note_live(item)
                if self._is_outbox(item.table):
                    yield from self._event(item, at_ms)
                    continue
                topic = self._writer.topic(item.table)
                for change in self._spelled_out(item):
                    yield OutputRecord(topic, change.key, envelope.value(change, now_ms), timestamp_ms=at_ms)
                    if change.op == "d" and change.key is not None:
                        yield OutputRecord(topic, change.key, None, timestamp_ms=at_ms)
            else:
                yield from self._changed_table(batch, item)
        for table, count in envelope.counts.items():
            batch.counts[table] = batch.counts.get(table, 0) + count
            batch.changes += count
        batch.transaction_id = transaction.id
        batch.committed_us = self._committed_us = transaction.committed_us
        batch.state = replace(batch.state, position=transaction.position)

    def _spelled_out(self, change: Change) -> Iterable[Change]:
        """The change; of a truncated table with keys, deletes of all rows that its topic has at this point.

        A compacted topic takes no record without a key, and no reader would know which rows it means.
        """
        if change.op == "t" and self._writer.has_keys(change.table):
            return self._deletes(change)
        return (change,)

    def _deletes(self, truncated: Change) -> Iterator[Change]:
        assert self._source is not None
        with contextlib.closing(self._writer.live_keys(truncated.table)) as live:
            for page in live.pages():
                for key in page:
                    yield Change(truncated.table, "d", key, key, None, truncated.source)
                self._say_alive()

    def _without_blocks(
        self, items: Iterable[Item | ChangeBlock], envelope: Envelope, now_ms: int
    ) -> Iterator[Item | EncodedChanges]:
        """The items; those of blocks one by one only where each has to be examined."""
        for item in items:
            if not isinstance(item, ChangeBlock):
                yield item
            elif self._looks_at(item.tables):
                yield from item.changes()
            else:
                yield from item.encoded(envelope, now_ms)

    def _looks_at(self, tables: Collection[str]) -> bool:
        """Whether changes of one of these tables are more than records of its topic."""
        if self._pending is not None and self._pending.looks_at(tables):
            return True
        if self._live is not None and self._live[0] in tables:
            return True
        return bool(self._outbox) and any(map(self._is_outbox, tables))

    def _is_outbox(self, table: str) -> bool:
        return bool(self._outbox) and bool({table, table.partition(".")[2]} & self._outbox)

    def _event(self, change: Change, at_ms: int) -> Iterator[OutputRecord]:
        event = event_of(change, at_ms)
        if event is not None:
            self._writer.ensure_event_topic(event.topic)
            yield event

    def _changed_table(self, batch: Batch, item: TableSchema | Resnapshot) -> Iterator[OutputRecord]:
        """A table has other columns from here on, or has to be read again."""
        if self._pending is not None and self._pending.chunk.table == item.table:
            self._pending.spoilt = True
        if isinstance(item, TableSchema):
            yield from self._writer.announce([item])
            if item.table not in batch.state.tables:
                batch.state = batch.state.with_tables([*batch.state.tables, item.table], ())
            return
        if item.skipped and self._is_outbox(item.table):
            raise RequestError(
                f"{item.reason}; it is an event that would be lost: remove the capture, correct the row, and "
                "add the capture again, which brings the events that the outbox still has once more"
            )
        _log.warning("capture %s: %s is read again: %s", self.name, item.table, item.reason)
        self._forget_live()
        batch.state = batch.state.resnapshot([item.table])

    # --- snapshots ----------------------------------------------------------------------------

    def _read_chunk(self, source: Source) -> PendingChunk | None:
        table = self._state.next_snapshot()
        if table is None:
            return None
        progress = self._state.tables[table]
        if progress.phase == "gone":
            keys = self._keys_to_check(table)
            cursor = [keys[-1].decode()] if len(keys) == self._chunk_rows else None
            return PendingChunk(replace(source.read_keys(table, keys), cursor=cursor))
        if table not in self._totals:
            self._totals[table] = source.count(table)
        return PendingChunk(source.read_chunk(table, progress.cursor, self._chunk_rows))

    def _keys_to_check(self, table: str) -> Sequence[bytes]:
        """The next keys of the topic, in order; the cursor is the last one that was looked at."""
        if self._live is None or self._live[0] != table:
            self._forget_live()
            self._live = (table, self._writer.live_keys(table))
        cursor = self._state.tables[table].cursor
        return self._live[1].behind(cursor[0].encode() if cursor else b"", self._chunk_rows)

    def _note_live(self, change: Change) -> None:
        assert self._live is not None
        if change.table != self._live[0]:
            return
        if change.op == "t":
            self._live[1].clear()
        elif change.op == "d" and change.key is not None:
            self._live[1].discard(change.key)

    def _chunk(
        self, batch: Batch, envelope: Envelope, pending: PendingChunk
    ) -> Iterator[OutputRecord | RecordBlock]:
        """The rows of a chunk that have not changed since; advances the progress of its table."""
        chunk, now_ms = pending.chunk, self._clock.now_ms()
        progress = batch.state.tables.get(chunk.table)
        if pending.spoilt or progress is None:
            return
        rows = pending.block if pending.block is not None else pending.rows()
        counted = _Counted()
        yield from self._snapshot_rows(chunk.table, rows, envelope, chunk.read_us, now_ms, counted)
        batch.state = batch.state.advanced(chunk.table, chunk.cursor, counted.rows)
        if not batch.transaction_id:
            batch.transaction_id, batch.committed_us = f"snapshot:{chunk.read_us}", chunk.read_us

    def _snapshot_rows(
        self,
        table: str,
        rows: RowBlock | Iterable[Change],
        envelope: Envelope,
        read_us: int,
        now_ms: int,
        counted: "_Counted",
    ) -> Iterator[OutputRecord | RecordBlock]:
        """Rows of a snapshot as records; those that are gone only if the topic has them."""
        topic, at_ms = self._writer.topic(table), read_us // 1000
        if self._is_outbox(table):
            for row in rows.rows() if isinstance(rows, RowBlock) else rows:
                yield from self._event(row, at_ms)
                counted.rows += 1
            return
        for each in rows.encoded(envelope, read_us, now_ms) if isinstance(rows, RowBlock) else rows:
            if isinstance(each, EncodedChanges):
                yield RecordBlock(each.octets, each.numbers, each.count, {0: topic}, at_ms)
                counted.rows += each.count
                continue
            gone = each.op == "d"
            if gone and (self._live is None or each.key not in self._live[1]):
                continue
            value = envelope.snapshot_value(each, read_us, now_ms)
            yield OutputRecord(topic, each.key, value, timestamp_ms=at_ms)
            if gone:
                yield OutputRecord(topic, each.key, None, timestamp_ms=at_ms)
            counted.rows += 1

    # --- status -------------------------------------------------------------------------------

    def _running_state(self) -> State:
        return "streaming" if self._state.next_snapshot() is None else "snapshot"

    def _say_alive(self) -> None:
        """Repeats the status while a transaction is written that takes long, asking nothing of the source."""
        if time.monotonic() - self._said_at >= _ALIVE_S:
            self._said_at = time.monotonic()
            self.status = replace(self.status, at_ms=self._clock.now_ms())
            self._on_status(self.status)

    def _fail(self, reason: str, state: State) -> None:
        _log.info("capture %s: %s", self.name, reason)
        reconnects = self.status.reconnects + (state == "reconnecting")
        self.status = replace(
            self.status, error=reason, error_at_ms=self._clock.now_ms(), reconnects=reconnects
        )
        self._say(state)

    def _say(self, state: State, *, progress: CaptureState | None = None) -> None:
        """Tells the status; `progress` is how far a transaction has come that is not written yet."""
        self._said_at = time.monotonic()
        source, runs = self._source, state in ("streaming", "snapshot")
        reached = progress or self._state
        rates = self._rates.note(reached, self._said_at)
        self.status = replace(
            self.status,
            state=state,
            at_ms=self._clock.now_ms(),
            url=source.url if source is not None else self.status.url,
            connector=source.connector if source is not None else self.status.connector,
            lag=self._lag(source) if source is not None and runs else Lag(),
            tables={
                name: table_status(each, self._totals.get(name), rates.get(name))
                for name, each in reached.tables.items()
            },
        )
        self._on_status(self.status)

    def _lag(self, source: Source) -> Lag:
        return self._lags.note(source.lag(), self._committed_us, self._clock.now_ms())


class _Interrupted(Exception):  # noqa: N818 - what has happened
    """The run is to stop or to pause, and what is being written is not to be finished."""


@dataclass(slots=True)
class _Counted:
    """How many rows were written."""

    rows: int = 0


def _with_requests(state: CaptureState, requests: Mapping[str, Sequence[str]]) -> CaptureState:
    """The state with the tables of these requests to be read again."""
    for request, tables in requests.items():
        again = [each for each in state.tables if not tables or {each, each.partition(".")[2]} & set(tables)]
        state = replace(state.resnapshot(again), request=request or state.request)
    return state
