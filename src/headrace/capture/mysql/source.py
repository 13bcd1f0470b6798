"""MySQL or MariaDB as a `Source`: the binary log for changes, consistent snapshots for rows.

A position is

    {"product": "MySQL", "server": "3e11fa47-…", "gtid": "3e11fa47-…:1-5", "file": "binlog.000007",
     "pos": 1337, "created": 1763452800, "last": [7, 1337], "shapes": {"shop.orders": "9f3c01aa"}, "xa": {}}

Every transaction of `gtid` was read. `server`, `file` and `created` tell this server from one that
was put in its place (`resuming`). `last` is where the last transaction ended, which a snapshot must
have. `shapes` are the tables' columns as they were last seen (`tables`). `xa` are the tables of
XA transactions that are prepared and not yet committed.

**Chunks** are exact without writing anything to the database (`chunks`).
"""

import contextlib
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from headrace.capture.change import ChangeBlock, Item, Position, TableSchema, Transaction
from headrace.capture.mysql.catalog import Table, read_tables
from headrace.capture.mysql.chunks import (
    AwaitedChunk,
    Place,
    log_end,
    place_of,
    read_chunk,
    read_gone,
    snapshot_end,
)
from headrace.capture.mysql.decode import (
    BinlogEvent,
    DomainPositions,
    EventType,
    Gtid,
    GtidSet,
    read_gtid,
    read_payload,
)
from headrace.capture.mysql.frozen import FrozenDatabase, locked
from headrace.capture.mysql.group import BinlogTransaction
from headrace.capture.mysql.resuming import Server, is_same_server, why_not_resumed
from headrace.capture.mysql.setup import find_lacks, setting_lacks
from headrace.capture.mysql.stream import BinlogStream, file_created
from headrace.capture.mysql.tables import CapturedTables
from headrace.capture.mysql.wire import Connection, MysqlAddress, ServerError
from headrace.capture.source import Chunk, Lack, Lag, SourceChanged
from headrace.errors import ConfigError, RequestError, RetriableError
from headrace.kernels import RowEncoder

__all__ = ["MysqlSource"]

_IDLE_S = 10.0  # a position is written, and the catalog looked at, this often when nothing changes
_LONG_S = 60.0
_LOG_UNREADABLE = 1236
_DENIED = (1045, 1227)
_LOST = ("purged", "could not find", "not in the master's binlog", "not in the source's binlog", "diverged")


class MysqlSource:
    """One database of a server. `tables` are names, or `database.name`; none for all that it has."""

    connector = "mysql"

    def __init__(
        self, address: MysqlAddress, password: str = "", *, name: str, tables: Sequence[str] = ()
    ) -> None:
        self.database = address.database
        self.url = address.url
        self._address, self._password, self._name = address, password, name
        self._wanted = tuple(self._qualified(each) for each in tables)
        self._session: _Session | None = None

    @classmethod
    def from_url(cls, url: str, *, name: str, tables: Sequence[str] = ()) -> "MysqlSource":
        """The source that a URL names, with the password that it refers to."""
        address = MysqlAddress.parse(url)
        return cls(address, address.resolve_password(), name=name, tables=tables)

    def _qualified(self, table: str) -> str:
        own = f"{self.database}."
        if "." not in table:
            return own + table
        if not table.startswith(own):
            raise ConfigError(
                f"table {table} is not in the database {self.database}; capture another database under "
                "another name"
            )
        return table

    def check(self) -> Sequence[Lack]:
        with self._connected() as connection:
            return self._lacks(connection, read_tables(connection, self.database, self._wanted))

    def describe(self) -> Mapping[str, TableSchema]:
        with self._connected() as queries:
            return CapturedTables(queries, self.database, self._wanted).schemas()

    @contextlib.contextmanager
    def freeze(self) -> Iterator[FrozenDatabase]:
        """Tables of MySQL are locked for reading while the snapshot begins."""
        with self._connected() as queries:
            tables = CapturedTables(queries, self.database, self._wanted)
            with contextlib.ExitStack() as while_it_begins:
                if not queries.is_mariadb:
                    other = while_it_begins.enter_context(self._connected())
                    while_it_begins.enter_context(locked(other, tables))
                queries.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                frozen = FrozenDatabase(queries, tables)
            yield frozen

    def _lacks(self, connection: Connection, tables: Mapping[str, Table]) -> list[Lack]:
        return find_lacks(connection, wanted=self._wanted, tables=tables)

    def _connected(self) -> Connection:
        return Connection(self._address, self._password)

    def _server_id(self) -> int:
        return self._address.server_id or secrets.randbits(31) | 1 << 31

    # --- connecting ---------------------------------------------------------------------------

    def connect(self, position: Position | None) -> Position:
        with contextlib.ExitStack() as opened:
            queries = opened.enter_context(self._connected())
            self.connector = "mariadb" if queries.is_mariadb else "mysql"
            tables = CapturedTables(queries, self.database, self._wanted)
            lacks = self._lacks(queries, tables.tables)
            if lacks:
                raise ConfigError(_explained(lacks))
            dump = opened.enter_context(self._connected())
            self._session = self._opened(queries, dump, tables, position)
            opened.pop_all()
        return dict(self._session.position)

    def _opened(
        self, queries: Connection, dump: Connection, tables: CapturedTables, position: Position | None
    ) -> "_Session":
        server = self._server(queries, position)
        if position is None:
            start = self._fresh(queries, server)
        else:
            reason = why_not_resumed(position, server)
            if reason:
                raise self._changed(reason)
            tables.shapes = dict(position["shapes"])
            start = dict(position)
        stream = self._streaming(dump, str(start["gtid"]))
        if position is None and server.product == "MySQL":
            _begin_with(start, stream)
        elif position is not None and not is_same_server(position, server):
            _begin_with(start, stream)
            start["server"] = server.id
        items = tables.survey(tables.tables)
        start["shapes"] = tables.shapes
        return _Session(queries, stream, tables, start, items)

    def _server(self, queries: Connection, position: Position | None) -> Server:
        files = {row[0] or "": int(row[1] or 0) for row in queries.query("SHOW BINARY LOGS")}
        file = str(position["file"]) if position is not None else ""
        created = self._created(file) if file in files else None
        if queries.is_mariadb:
            return Server(
                product=queries.product, id=queries.variable("server_id"), files=files, created=created
            )
        return Server(
            product=queries.product,
            id=queries.variable("server_uuid"),
            files=files,
            created=created,
            executed=queries.value("SELECT @@global.gtid_executed"),
            purged=queries.value("SELECT @@global.gtid_purged"),
        )

    def _created(self, file: str) -> int | None:
        with self._connected() as probe:
            try:
                return file_created(probe, file, self._server_id())
            except ServerError as error:
                if error.number == _LOG_UNREADABLE:
                    return None
                raise self._refused(error) from error

    def _fresh(self, queries: Connection, server: Server) -> dict[str, Any]:
        """From now on: everything before is visible to a snapshot that is taken later."""
        if queries.is_mariadb:
            queries.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            file, pos = snapshot_end(queries)
            queries.query("COMMIT")
            gtid = queries.query(f"SELECT BINLOG_GTID_POS('{file}', {pos})")[0][0] or ""
        else:
            gtid = server.executed
            file, pos = log_end(queries)
        created = self._created(file) or 0
        return {
            "product": server.product, "server": server.id, "gtid": "".join(gtid.split()), "file": file,
            "pos": pos, "created": created, "last": list(place_of(file, pos)), "shapes": {}, "xa": {},
        }  # fmt: skip

    def _streaming(self, dump: Connection, gtid: str) -> BinlogStream:
        try:
            return BinlogStream(dump, self._server_id(), gtid)
        except ServerError as error:
            raise self._refused(error) from error

    def _refused(self, error: ServerError) -> RequestError | ConfigError | RetriableError:
        said = error.message.lower()
        if error.number in _DENIED:
            return ConfigError(
                f"{error}. Run: GRANT REPLICATION SLAVE ON *.* TO the user {self._address.user};"
            )
        if error.number != _LOG_UNREADABLE:
            return error
        if any(each in said for each in _LOST):
            return self._changed(str(error))
        return RetriableError(str(error))

    def _changed(self, what: str) -> SourceChanged:
        return SourceChanged(
            f"{self._address}: {what}; `headrace capture resnapshot {self._name}` reads all tables again"
        )

    def _open(self) -> "_Session":
        assert self._session is not None, "not connected"
        return self._session

    def remove(self) -> None:
        """Nothing was set up."""
        self.close()

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    # --- while connected ----------------------------------------------------------------------

    def schemas(self) -> Mapping[str, TableSchema]:
        return self._open().tables.schemas()

    def first_load(self, _tables: Sequence[str]) -> None:
        return None

    def transactions(self, wait_s: float) -> Iterable[Transaction]:
        try:
            yield from self._open().transactions(wait_s)
        except ServerError as error:
            raise self._refused(error) from error

    def read_chunk(self, table: str, cursor: Sequence[Any] | None, most_rows: int) -> Chunk:
        return self._open().read_chunk(table, cursor, most_rows)

    def read_keys(self, table: str, keys: Sequence[bytes]) -> Chunk:
        return self._open().read_keys(table, keys)

    def count(self, table: str) -> int | None:
        return self._open().count(table)

    def lag(self) -> Lag:
        return self._open().lag()

    def acknowledge(self, position: Position) -> None:
        """The server keeps its log for as long as it is told to, whoever has read it."""
        self._open().acknowledged = place_of(position["file"], position["pos"])


class _Session:
    """Both connections from `connect` to `close`, and what is known only in between."""

    def __init__(
        self,
        queries: Connection,
        stream: BinlogStream,
        tables: CapturedTables,
        position: dict[str, Any],
        items: list[Item],
    ) -> None:
        self.queries, self.stream, self.tables = queries, stream, tables
        self.position = position
        self.acknowledged = place_of(position["file"], position["pos"])
        self.xa: dict[str, list[str]] = dict(position["xa"])
        self.encoder = RowEncoder()
        self._items = items  # to go out with the next position
        kind = DomainPositions if queries.is_mariadb else GtidSet
        self._read: DomainPositions | GtidSet = kind.parse(position["gtid"])
        self._moved_at = self._looked_at = time.monotonic()
        self._awaited: Place = (0, 0)

    def close(self) -> None:
        self.stream.close()
        self.queries.close()

    def lag(self) -> Lag:
        """The log behind what is acknowledged; what the server says has nothing for us does not count."""
        reached = self.acknowledged
        if reached >= self._place():
            reached = max(reached, self.stream.place)
        end = place_of(*log_end(self.queries))
        if end[0] == reached[0]:
            return Lag(bytes=max(end[1] - reached[1], 0))
        sizes = {
            place_of(row[0] or "", 0)[0]: int(row[1] or 0) for row in self.queries.query("SHOW BINARY LOGS")
        }
        behind = sum(size for number, size in sizes.items() if number > reached[0])
        return Lag(bytes=behind + max(sizes.get(reached[0], 0) - reached[1], 0))

    def count(self, table: str) -> int | None:
        found = self.tables.tables[table]
        rows = self.queries.query(f"EXPLAIN SELECT COUNT(*) FROM {found.quoted}")
        about = [each for each in (rows[0] if rows else ()) if each is not None and each.isdecimal()]
        return max((int(each) for each in about), default=None)

    # --- positions ----------------------------------------------------------------------------

    def transactions(self, wait_s: float) -> Iterator[Transaction]:
        wait_until = time.monotonic() + wait_s
        while True:
            event = self.stream.next(max(wait_until - time.monotonic(), 0.0))
            begun = self._begun(event) if event is not None else None
            now = time.monotonic()
            if begun is not None:
                yield begun
                wait_until = time.monotonic()
                continue
            if now - self._looked_at > _IDLE_S:
                self._look_again()
            if self._is_due(now):
                yield self._moved()
            if now >= wait_until:
                return

    def _place(self) -> Place:
        return place_of(self.position["file"], self.position["pos"])

    def _is_due(self, now: float) -> bool:
        """Whether to move the position though nothing of ours has changed.

        For a chunk that waits for it; or now and then, so that little is read again after a restart.
        """
        if self._items:
            return True
        if self.stream.place <= self._place() and str(self._read) == self.position["gtid"]:
            return False
        return self._place() < self._awaited or now - self._moved_at > _IDLE_S

    def _moved(self) -> Transaction:
        items, self._items = self._items, []
        position = self._advanced(self.position)
        return Transaction(
            id=f"{position['file']}:{position['pos']}",
            position=position,
            committed_us=time.time_ns() // 1000,
            changes=items,
        )

    def _advanced(self, position: dict[str, Any]) -> dict[str, Any]:
        """The position as it is now; `position` is what it was."""
        self.position = {
            **position, "gtid": str(self._read), "xa": dict(self.xa), "shapes": self.tables.shapes,
        }  # fmt: skip
        if self.stream.place > self._place():
            _begin_with(self.position, self.stream)
        self._moved_at = time.monotonic()
        return self.position

    def _look_again(self) -> None:
        """Finds what the log does not tell of: tables that changed without it, and settings."""
        lacks = setting_lacks(self.queries)
        if lacks:
            raise ConfigError(_explained(lacks))
        self._items += self.tables.look_again()
        self._looked_at = time.monotonic()

    # --- changes ------------------------------------------------------------------------------

    def _begun(self, event: BinlogEvent) -> Transaction | None:
        """The transaction that begins; None for one that has nothing for us."""
        if event.type == EventType.FORMAT_DESCRIPTION and not event.is_artificial:
            self.tables.forget_maps()
        if event.type in _UNREADABLE:
            raise RequestError(_UNREADABLE[event.type])
        if event.type not in (EventType.GTID, EventType.MARIADB_GTID):
            return None
        gtid = read_gtid(event)
        group = BinlogTransaction(self, gtid)
        position = {**self.position, "file": self.stream.file, "pos": self.stream.position}
        items = self._items_of(group, position)
        first = next(items, None)
        if first is None:
            return None
        return Transaction(
            id=str(gtid),
            position=position,
            committed_us=gtid.committed_us,
            changes=chain([first], items),
        )

    def _items_of(self, group: BinlogTransaction, position: dict[str, Any]) -> Iterator[Item | ChangeBlock]:
        """The items of a transaction; `position` is complete once they have ended."""
        items, self._items = self._items, []
        yield from items
        while not group.is_over:
            event = self._next()
            if event.type == EventType.TRANSACTION_PAYLOAD:
                for each in read_payload(event.body):
                    yield from group.take(each)
            else:
                yield from group.take(event)
        yield from group.rest()
        self._ended(group.gtid)
        if group.has_items or items:
            position.update(self._advanced(self.position))

    def _ended(self, gtid: Gtid) -> None:
        if isinstance(self._read, GtidSet):
            self._read.add(gtid.origin, gtid.number)
        else:
            self._read.add(int(gtid.origin), gtid.server_id, gtid.number)
        self.position = {**self.position, "last": list(self.stream.place)}

    def _next(self) -> BinlogEvent:
        while (event := self.stream.next(_LONG_S)) is None:
            pass
        return event

    # --- snapshots ----------------------------------------------------------------------------

    def read_chunk(self, table: str, cursor: Sequence[Any] | None, most_rows: int) -> Chunk:
        found = self.tables.current(table)
        awaited = read_chunk(self.queries, found, cursor, most_rows, self._delivered(), self.encoder)
        return self._awaiting(awaited)

    def read_keys(self, table: str, keys: Sequence[bytes]) -> Chunk:
        found = self.tables.current(table)
        return self._awaiting(read_gone(self.queries, found, keys, self._delivered()))

    def _delivered(self) -> Position:
        return {**self.position, "gtid": str(self._read)}

    def _awaiting(self, awaited: AwaitedChunk) -> Chunk:
        self._awaited = awaited.end
        return awaited.chunk


_UNREADABLE: Mapping[int, str] = {
    EventType.ANONYMOUS_GTID: "a transaction has no GTID: gtid_mode was not ON; "
    "set it, then remove the capture and add it again",
    EventType.TAGGED_GTID: "transactions with tags in their GTIDs cannot be captured; write without them, "
    "then remove the capture and add it again",
    EventType.MARIADB_ENCRYPTION: "the binary log is encrypted, and the server sends it as it is",
}


def _begin_with(position: dict[str, Any], stream: BinlogStream) -> None:
    """Notes where the stream is."""
    if stream.created or stream.file != position["file"]:
        position["created"] = stream.created
    position["file"], position["pos"] = stream.file, stream.position


def _explained(lacks: Sequence[Lack]) -> str:
    statements = " ".join(f"{each};" for lack in lacks for each in lack.statements)
    reasons = "; ".join(lack.what for lack in lacks)
    return f"the database is not ready: {reasons}" + (f". Run: {statements}" if statements else "")
