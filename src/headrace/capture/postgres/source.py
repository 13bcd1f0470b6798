"""PostgreSQL as a `Source`: a publication and a slot for changes, MVCC snapshots for rows.

A position is

    {"lsn": 26741336, "last": [753, 26741335, 1700000000000000], "system": "7412…", "timeline": 1,
     "shapes": {"public.orders": "9f3c01aa"}, "partitions": {}}

Everything that commits before `lsn` was read; the last transaction of it is `last`. With `system` and
`timeline` it tells this database from one that was put in its place (`resuming`). `shapes` are the
tables' columns as they were last seen, so that a change is noticed however long nobody was looking
(`tables`), `partitions` the same of those (`partitions`).

**Chunks** are exact without writing anything to the database. They are read in REPEATABLE READ,
and PostgreSQL says which transactions such a snapshot contains (`visibility`). A commit is in
the log before it is visible, so a snapshot that lacks what the stream has delivered already is
taken again. The chunk is reached once the stream has passed the end of the log as it was
after the snapshot; keepalives tell of that when nothing is written.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from headrace.capture.change import Change, ChangeBlock, Item, Position, TableSchema, Transaction
from headrace.capture.postgres.catalog import Table, Types, read_files, read_tables
from headrace.capture.postgres.chunks import AwaitedChunk, read_chunk, read_gone
from headrace.capture.postgres.decode import (
    Begin,
    Commit,
    Delete,
    Insert,
    Message,
    MessageBlock,
    RelationMessage,
    Transactions,
    Truncate,
    Update,
    WalData,
    read_message,
)
from headrace.capture.postgres.frozen import FrozenDatabase
from headrace.capture.postgres.loading import Holder, ParallelLoad
from headrace.capture.postgres.resuming import Overlap, Server, find_usable, why_not_resumed
from headrace.capture.postgres.setup import (
    Slot,
    create_exporting_slot,
    create_slot,
    drop_publication,
    drop_slot,
    ensure_publication,
    find_lacks,
    find_slot,
)
from headrace.capture.postgres.stream import ReplicationStream
from headrace.capture.postgres.tables import CapturedTables
from headrace.capture.postgres.visibility import Recent, Visibility
from headrace.capture.postgres.wire import (
    Connection,
    PostgresAddress,
    ServerError,
    format_lsn,
    literal,
    parse_lsn,
)
from headrace.capture.source import Chunk, Lack, Lag, SourceChanged
from headrace.errors import ConfigError, RetriableError
from headrace.kernels import RowEncoder

__all__ = ["PostgresSource", "own_name"]

_ASK_S = 0.05  # while a chunk waits for the stream
_NUDGE_S = 0.2  # more than it takes the server to write out a commit that nobody waited for
_IDLE_S = 10.0  # a position is written, and the catalog looked at, this often when nothing changes
_SETTLE_S = 2.0
RELEASE_S = 5.0
_LONG_S = 60.0
_LONGEST_NAME = 63
_XIDS = 1 << 32  # ids of transactions come round after so many
# What the server says when a slot or its part of the log is gone.
_GONE_STATES = ("42704", "55000", "58P01")


class PostgresSource:
    """One database, through the slot and the publication `headrace_<name>`, unless others are named.

    `tables` are `schema.name`; none for all that the database has. `decimals` is "string" or "double".
    `load_workers` connections read the rows of a first load (`loading`); 0: chunks do.
    """

    connector = "postgresql"

    def __init__(
        self,
        address: PostgresAddress,
        password: str = "",
        *,
        name: str,
        tables: Sequence[str] = (),
        slot: str = "",
        publication: str = "",
        decimals: str = "string",
        load_workers: int = 0,
    ) -> None:
        if decimals not in ("string", "double"):
            raise ConfigError(f'decimals is "string" or "double", not {decimals!r}')
        self.database = address.database
        self.url = f"postgresql://{address.user}@{address.host}:{address.port}/{address.database}"
        self._address, self._password = address, password
        self._name = name
        self._wanted = tuple(each if "." in each else f"public.{each}" for each in tables)
        self._slot = slot or own_name(name)
        self._publication = publication or own_name(name)
        self._owns_publication = not publication
        self._decimals = decimals
        self._load_workers = load_workers
        self._session: _Session | None = None

    @classmethod
    def from_url(
        cls, url: str, *, name: str, tables: Sequence[str] = (), load_workers: int = 0
    ) -> "PostgresSource":
        """The source that a URL names, with the password that it refers to."""
        address = PostgresAddress.parse(url)
        password = address.resolve_password()
        return cls(address, password, name=name, tables=tables, load_workers=load_workers)

    def check(self) -> Sequence[Lack]:
        with self._connected() as connection:
            return self._lacks(connection, read_tables(connection, self._wanted))

    def describe(self) -> Mapping[str, TableSchema]:
        with self._connected() as queries:
            return CapturedTables(queries, self._wanted, Types(queries, self._decimals)).schemas()

    @contextlib.contextmanager
    def freeze(self) -> Iterator[FrozenDatabase]:
        with self._connected() as queries:
            queries.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            tables = CapturedTables(queries, self._wanted, Types(queries, self._decimals))
            frozen = FrozenDatabase(queries, tables)
            with self._connected() as other:
                _nudge(other)
            yield frozen

    def _lacks(self, connection: Connection, tables: Mapping[str, Table]) -> list[Lack]:
        return find_lacks(
            connection, wanted=self._wanted, tables=tables, slot=self._slot, publication=self._publication
        )

    def _connected(self, *, replication: bool = False) -> Connection:
        return Connection(self._address, self._password, replication=replication)

    # --- connecting ---------------------------------------------------------------------------

    def connect(self, position: Position | None) -> Position:
        with contextlib.ExitStack() as opened:
            queries = opened.enter_context(self._connected())
            tables = CapturedTables(queries, self._wanted, Types(queries, self._decimals))
            lacks = self._lacks(queries, tables.tables)
            if lacks:
                raise ConfigError(_explained(lacks))
            replication = opened.enter_context(self._connected(replication=True))
            self._session = self._opened(queries, replication, tables, position)
            opened.pop_all()
        return dict(self._session.position)

    def _opened(
        self, queries: Connection, replication: Connection, tables: CapturedTables, position: Position | None
    ) -> "_Session":
        server = _server(queries, replication)
        slot = find_usable(self._released_slot(queries), self._slot, self.database)
        reason = why_not_resumed(position, server, slot) if position is not None else ""
        if reason:
            raise self._changed(reason)
        added = ensure_publication(queries, self._publication, tables.tables.values())
        holder: Holder | None = None
        overlap: Overlap | None = None
        if position is not None:
            assert slot is not None
            lsn = int(position["lsn"])
            overlap = Overlap(position, slot.confirmed_lsn)
            tables.shapes = dict(position["shapes"])
            tables.partitions = dict(position.get("partitions", {}))
        elif slot is not None and not slot.is_lost and not self._load_workers:
            lsn = slot.confirmed_lsn  # of a run that ended before it had written anything
        else:
            if slot is not None:
                drop_slot(queries, self._slot)
            if self._load_workers:
                lsn, holder = self._held(queries, replication, tables)
            else:
                lsn = create_slot(queries, self._slot)
        items = tables.survey(tables.tables, added if position is not None else set())
        start = {
            "lsn": lsn,
            "last": position.get("last") if position is not None else None,
            "system": server.system,
            "timeline": server.timeline,
            "shapes": tables.shapes,
            "partitions": tables.partitions,
        }
        stream = self._streaming(replication, overlap.start_lsn if overlap is not None else lsn)
        return _Session(
            queries, stream, tables, start, items, self._publication, overlap, self._changed, holder
        )

    def _held(
        self, queries: Connection, replication: Connection, tables: CapturedTables
    ) -> tuple[int, Holder]:
        """Where a new slot begins, and who holds the state of the database at that position.

        A table that was rewritten before it was locked looks empty there.
        """
        wanted = list(tables.tables.values())
        before = read_files(queries, wanted)
        lsn, snapshot = create_exporting_slot(replication, self._slot)
        holder = Holder(self._connected(), snapshot, wanted)
        if read_files(queries, wanted) != before:
            holder.close()
            raise RetriableError("a table was rewritten when its first load began")
        return lsn, holder

    def _released_slot(self, queries: Connection) -> Slot | None:
        """The slot, once the server has noticed that the connection before is gone; soon, if it is."""
        until = time.monotonic() + RELEASE_S
        while True:
            slot = find_slot(queries, self._slot)
            if slot is None or not slot.is_active or time.monotonic() >= until:
                return slot
            time.sleep(_ASK_S)

    def _streaming(self, replication: Connection, lsn: int) -> ReplicationStream:
        try:
            return ReplicationStream(
                replication, self._slot, self._publication, lsn, timeout_s=_sender_timeout_s(replication)
            )
        except ServerError as error:
            if error.sqlstate in _GONE_STATES:
                raise self._changed(str(error)) from error
            raise

    def _changed(self, what: str) -> SourceChanged:
        return SourceChanged(
            f"{self._address}: {what}; `headrace capture resnapshot {self._name}` reads all tables again"
        )

    def _open(self) -> "_Session":
        assert self._session is not None, "not connected"
        return self._session

    def remove(self) -> None:
        self.close()
        with self._connected() as connection:
            if find_slot(connection, self._slot) is not None:
                drop_slot(connection, self._slot)
            if self._owns_publication:
                drop_publication(connection, self._publication)

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    # --- while connected ----------------------------------------------------------------------

    def schemas(self) -> Mapping[str, TableSchema]:
        return self._open().tables.schemas()

    def first_load(self, tables: Sequence[str]) -> ParallelLoad | None:
        return self._open().first_load(tables, self._connected, self._load_workers)

    def transactions(self, wait_s: float) -> Iterable[Transaction]:
        return self._open().transactions(wait_s)

    def read_chunk(self, table: str, cursor: Sequence[Any] | None, most_rows: int) -> Chunk:
        return self._open().read_chunk(table, cursor, most_rows)

    def read_keys(self, table: str, keys: Sequence[bytes]) -> Chunk:
        return self._open().read_keys(table, keys)

    def count(self, table: str) -> int | None:
        return self._open().count(table)

    def lag(self) -> Lag:
        return self._open().lag()

    def acknowledge(self, position: Position) -> None:
        self._open().stream.acknowledge(int(position["lsn"]))


class _Session:
    """Both connections from `connect` to `close`, and what is known only in between."""

    def __init__(
        self,
        queries: Connection,
        stream: ReplicationStream,
        tables: CapturedTables,
        position: dict[str, Any],
        items: list[Item],
        publication: str,
        overlap: Overlap | None,
        changed: Callable[[str], SourceChanged],
        holder: Holder | None,
    ) -> None:
        self.queries, self.stream, self.tables = queries, stream, tables
        self._holder = holder
        self._load: ParallelLoad | None = None
        self.position = position
        self._publication = publication
        self._overlap, self._changed = overlap, changed
        self._last: list[int] | None = position["last"]
        self._items = items  # to go out with the next position
        self._messages = Transactions()
        self._recent = Recent()
        self._doubtful = self._visibility().in_progress
        self._last_commit: Begin | None = None
        self._moved_at = self._looked_at = time.monotonic()
        self._awaited_lsn = 0
        self._nudge_at = 0.0
        self._encoder: RowEncoder | None = None

    def close(self) -> None:
        self._end_load()
        self.stream.close()
        self.queries.close()

    def first_load(
        self, tables: Sequence[str], connect: Callable[[], Connection], workers: int
    ) -> ParallelLoad | None:
        if self._holder is None or not tables:
            self._end_load()
            return None
        chosen = {each: self.tables.known(each) for each in tables}
        self._load = ParallelLoad(self._holder, connect, chosen, workers)
        return self._load

    def _end_load(self) -> None:
        if self._load is not None:
            self._load.close()
        elif self._holder is not None:
            self._holder.close()
        self._holder = self._load = None

    def _visibility(self) -> Visibility:
        return Visibility.parse(self.queries.value("SELECT pg_current_snapshot()"))

    def lag(self) -> Lag:
        """The log behind what is acknowledged; what the server says has nothing for us does not count."""
        reached = self.stream.acknowledged_lsn
        if reached >= self.position["lsn"]:
            reached = max(reached, self.stream.sent_lsn)
        ((behind, held, next_xid),) = self.queries.query(
            f"SELECT pg_current_wal_lsn() - '{format_lsn(reached)}'::pg_lsn,"
            " pg_current_wal_lsn() - restart_lsn,"
            " pg_snapshot_xmax(pg_current_snapshot()) FROM (SELECT) AS one LEFT JOIN pg_replication_slots"
            f" ON slot_name = {literal(self.stream.slot)}"
        )
        behind_bytes = max(int(behind or 0), 0)
        return Lag(
            bytes=behind_bytes,
            transactions=self._transactions_behind(int(next_xid or 0)) if behind_bytes else 0,
            held_bytes=max(int(held), 0) if held is not None else None,
        )

    def _transactions_behind(self, next_xid: int) -> int | None:
        """At most: the ids given out since the last transaction that was read; None before the first."""
        if self._last_commit is None:
            return None
        return (next_xid - 1 - self._last_commit.xid) % _XIDS

    def count(self, table: str) -> int | None:
        """What the planner makes of the table's size, which it knows also before anything was analyzed."""
        found = self.tables.tables[table]
        plan = self.queries.value(f"EXPLAIN (FORMAT JSON) SELECT 1 FROM {found.own_rows}")
        return int(orjson.loads(plan)[0]["Plan"]["Plan Rows"])

    # --- positions ----------------------------------------------------------------------------

    def transactions(self, wait_s: float) -> Iterator[Transaction]:
        wait_until = time.monotonic() + wait_s
        while True:
            message = self.stream.next(self._patience_s(wait_until))
            now = time.monotonic()
            begun = self._begun(message) if message is not None else None
            if begun is not None:
                yield begun
                wait_until = now
                continue
            self._compare(self.stream.sent_lsn)
            if now - self._looked_at > _IDLE_S:
                self._look_again()
            if self._is_due(now):
                yield self._moved()
            if now >= wait_until and self.stream.is_drained:
                return
            if self._is_awaited() and now >= self._nudge_at:
                _nudge(self.queries)
                self._nudge_at = now + _NUDGE_S

    def _patience_s(self, wait_until: float) -> float:
        left = max(wait_until - time.monotonic(), 0.0)
        if not self._is_awaited():
            return left
        self.stream.ask(every_s=_ASK_S)
        return min(left, _ASK_S)

    def _is_awaited(self) -> bool:
        return int(self.position["lsn"]) < self._awaited_lsn

    def _is_due(self, now: float) -> bool:
        """Whether to move the position though nothing of ours has changed.

        For a chunk that waits for it; or now and then, so that the server need not keep its log.
        """
        if self._items:
            return True
        if self.stream.sent_lsn <= self.position["lsn"]:
            return False
        return self._is_awaited() or now - self._moved_at > _IDLE_S

    def _compare(self, reached_lsn: int) -> None:
        """Behind everything that was read before: SourceChanged if the log is another one."""
        overlap = self._overlap
        if overlap is not None and reached_lsn >= overlap.until:
            if reason := overlap.why_other(reached_lsn):
                raise self._changed(reason)
            self._overlap = None

    def _skip_repeated(self, begin: Begin, data: WalData) -> None:
        """Reads a transaction that was read already for the descriptions of tables, which come only once."""
        while not isinstance(message := self._messages.read(data.payload), Commit):
            if isinstance(message, RelationMessage):
                self.tables.note(message)
            data = self._next()
        self._ended(begin)
        self.stream.passed(begin.final_lsn + 1)

    def _moved(self) -> Transaction:
        items, self._items = self._items, []
        lsn = max(self.stream.sent_lsn, int(self.position["lsn"]))
        position = self._advance(lsn)
        return Transaction(
            id=f"0:{lsn}", position=position, committed_us=time.time_ns() // 1000, changes=items
        )

    def _advance(self, lsn: int) -> dict[str, Any]:
        tables = self.tables
        self.position = {
            **self.position,
            "lsn": lsn,
            "last": self._last,
            "shapes": tables.shapes,
            "partitions": tables.partitions,
        }
        self._moved_at = time.monotonic()
        return self.position

    def _look_again(self) -> None:
        """Finds what the stream does not tell of: tables that are new, gone, or changed without a row."""
        found = self.tables.look_again()
        added = ensure_publication(self.queries, self._publication, found.values())
        self._items += self.tables.survey(found, added & set(self.tables.tables))
        self._looked_at = time.monotonic()

    # --- changes ------------------------------------------------------------------------------

    def _begun(self, message: WalData) -> Transaction | None:
        """The transaction that begins; None for one that has nothing for us."""
        begin = self._messages.read(message.payload)
        if not isinstance(begin, Begin):
            return None
        block = self._block(begin) if self._overlap is None else None
        first = self._next() if block is None else None
        if first is not None and isinstance(read_message(first.payload), Commit):
            self._messages.read(first.payload)
            self._ended(begin)
            self.stream.passed(begin.final_lsn + 1)
            return None
        if first is not None and self._overlap is not None and self._overlap.is_repeated(begin):
            self._skip_repeated(begin, first)
            return None
        if self._overlap is not None:
            if reason := self._overlap.why_other(begin.final_lsn):
                raise self._changed(reason)
            self._overlap = None
        self._last = [begin.xid, begin.final_lsn, begin.commit_time_us]
        position = self._advance(begin.final_lsn + 1)
        return Transaction(
            id=f"{begin.xid}:{begin.final_lsn}",
            position=position,
            committed_us=begin.commit_time_us,
            changes=self._changes(begin, [block or first], position),
        )

    def _next(self) -> WalData:
        while (message := self.stream.next(_LONG_S)) is None:
            pass
        return message

    def _changes(
        self, begin: Begin, first: "list[MessageBlock | WalData | None]", position: dict[str, Any]
    ) -> Iterator[Item | ChangeBlock]:
        """The items of a transaction; `position` is complete once they have ended.

        A row may be large: nothing holds its bytes while what became of it is written.
        """
        items, self._items = self._items, []
        yield from items
        while True:
            read = first.pop() if first else self._block(begin) or self._next()
            if isinstance(read, MessageBlock):
                made = [read]
                del read
                yield made.pop()
                continue
            assert read is not None
            lsn, message = read.lsn, self._messages.read(read.payload)
            del read
            if isinstance(message, Commit):
                break
            told = self._of_message(begin, lsn, message)
            del message
            yield from told
        position["shapes"] = self.tables.shapes
        self._ended(begin)

    def _block(self, begin: Begin) -> MessageBlock | None:
        """The rows that have arrived next, if they are of tables that can be encoded at once."""
        data, found = self.stream.rows_of(self.tables.plain())
        if not found.count:
            return None
        self._encoder = self._encoder or RowEncoder()

        def read(data: WalData) -> Iterator[Item]:
            return self._of_message(begin, data.lsn, self._messages.read(data.payload))

        return MessageBlock(
            data,
            found,
            self.tables.plain(),
            self._encoder,
            xid=begin.xid,
            last_commit=self._said_commit(),
            read=read,
        )

    def _ended(self, begin: Begin) -> None:
        self._recent.add(begin.xid)
        self._last_commit = begin

    def _of_message(self, begin: Begin, lsn: int, message: Message) -> Iterator[Item]:
        match message:
            case RelationMessage():
                self.tables.note(message)
            case Insert():
                yield from self.tables.before_row(message.relation_oid)
                if writer := self.tables.writer(message.relation_oid):
                    change = writer.inserted(message, self._said(begin, lsn))
                    del message
                    yield change
            case Update():
                yield from self.tables.before_row(message.relation_oid)
                if writer := self.tables.writer(message.relation_oid):
                    yield from writer.updated(message, self._said(begin, lsn))
            case Delete():
                yield from self.tables.before_row(message.relation_oid)
                if writer := self.tables.writer(message.relation_oid):
                    yield writer.deleted(message, self._said(begin, lsn))
            case Truncate():
                for oid in message.relation_oids:
                    yield from self.tables.before_row(oid)
                    if writer := self.tables.writer(oid):
                        yield Change(writer.table, "t", None, None, None, self._said(begin, lsn))

    def _said(self, begin: Begin, lsn: int) -> bytes:
        """Debezium's members of `source` for PostgreSQL."""
        last = self._said_commit()
        return b'"sequence":"[%b,\\"%d\\"]","txId":%d,"lsn":%d,"xmin":null' % (last, lsn, begin.xid, lsn)

    def _said_commit(self) -> bytes:
        return b"null" if self._last_commit is None else b'\\"%d\\"' % self._last_commit.final_lsn

    # --- snapshots ----------------------------------------------------------------------------

    def read_chunk(self, table: str, cursor: Sequence[Any] | None, most_rows: int) -> Chunk:
        self._settle()
        found, writer = self.tables.current(table)
        self._encoder = self._encoder or RowEncoder()
        return self._awaiting(
            read_chunk(self.queries, found, writer, cursor, most_rows, self._recent.misses, self._encoder)
        )

    def read_keys(self, table: str, keys: Sequence[bytes]) -> Chunk:
        self._settle()
        found, writer = self.tables.current(table)
        return self._awaiting(read_gone(self.queries, found, writer, keys, self._recent.misses))

    def _awaiting(self, awaited: AwaitedChunk) -> Chunk:
        self._awaited_lsn = awaited.end_lsn
        self._nudge_at = time.monotonic() + _NUDGE_S
        return awaited.chunk

    def _settle(self) -> None:
        """Waits for transactions that may have come out of the stream before we connected.

        Those in progress then could have been read by the run before this one. They are over
        within moments; one that is not has not committed, and will come out of the stream.
        """
        until = time.monotonic() + _SETTLE_S
        while self._doubtful and time.monotonic() < until:
            self._doubtful &= self._visibility().in_progress
            if self._doubtful:
                time.sleep(_ASK_S)
        self._doubtful = frozenset()


def _nudge(queries: Connection) -> None:
    """Makes the server write its log out to the end: it waits with what no commit depends on."""
    queries.query("SELECT pg_current_xact_id()")


def _server(queries: Connection, replication: Connection) -> Server:
    system, timeline = replication.query("IDENTIFY_SYSTEM")[0][:2]
    number = int(timeline or 1)
    history = replication.query(f"TIMELINE_HISTORY {number}")[0][1] if number > 1 else ""
    end = parse_lsn(queries.value("SELECT pg_current_wal_insert_lsn()"))
    return Server(system=system or "", timeline=number, end_lsn=end, history=history or "")


def _sender_timeout_s(replication: Connection) -> float:
    """How long the server waits to hear from a reader; 0: for ever."""
    said = replication.value("SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'")
    return int(said) / 1000


def own_name(name: str) -> str:
    """A slot's name has small letters, digits and underscores only, and at most 63 of them."""
    letters = (each if each.isascii() and each.isalnum() else "_" for each in name.lower())
    return f"headrace_{''.join(letters)}"[:_LONGEST_NAME]


def _explained(lacks: Sequence[Lack]) -> str:
    statements = " ".join(f"{each};" for lack in lacks for each in lack.statements)
    reasons = "; ".join(lack.what for lack in lacks)
    return f"the database is not ready: {reasons}" + (f". Run: {statements}" if statements else "")
