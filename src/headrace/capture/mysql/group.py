"""One transaction of the binary log: what its events mean for topics."""

from collections.abc import Iterator
from typing import Protocol

from headrace.capture.change import ChangeBlock, Item, Resnapshot
from headrace.capture.mysql.decode import (
    ROW_EVENTS,
    BinlogEvent,
    EventType,
    Gtid,
    Meaning,
    RowsBlock,
    read_query,
    read_rows,
    read_statement,
    source_of_row,
)
from headrace.capture.mysql.stream import BinlogStream
from headrace.capture.mysql.tables import CapturedTables, LoggedTable, touched_by
from headrace.errors import RetriableError
from headrace.kernels import RowEncoder

__all__ = ["BinlogSession", "BinlogTransaction"]


class BinlogSession(Protocol):
    """What a transaction is read in; `xa` are the tables of XA transactions that are prepared."""

    stream: BinlogStream
    tables: CapturedTables
    xa: dict[str, list[str]]
    encoder: RowEncoder


class BinlogTransaction:
    """One transaction of the log, event by event, until `is_over`."""

    def __init__(self, session: BinlogSession, gtid: Gtid) -> None:
        self._session, self._tables = session, session.tables
        self.gtid = gtid
        self.is_over = self.has_items = False
        self._has_begun = bool(not gtid.is_standalone and "-" not in gtid.origin)
        self._xa = ""
        self._is_held = gtid.is_prepared
        self._touched: dict[str, None] = {}
        self._again: dict[str, Resnapshot] = {}

    def take(self, event: BinlogEvent) -> Iterator[Item | ChangeBlock]:
        """What an event means for the topics."""
        for item in self._items(event):
            self.has_items = True
            yield item

    def rest(self) -> Iterator[Item]:
        """What is to be said at the end: tables that have to be read again."""
        for item in self._again.values():
            self.has_items = True
            yield item

    def _items(self, event: BinlogEvent) -> Iterator[Item | ChangeBlock]:
        if event.type == EventType.TABLE_MAP:
            self._tables.note(event.body)
        elif event.type in ROW_EVENTS:
            yield from self._rows(event)
        elif event.type in (EventType.QUERY, EventType.MARIADB_QUERY_COMPRESSED):
            yield from self._statement(event)
        elif event.type == EventType.XID:
            self.is_over = True
        elif event.type == EventType.XA_PREPARE:
            self._prepared(is_committed=bool(event.body[0]))
        elif event.type == EventType.PARTIAL_UPDATE_ROWS:
            logged = self._tables.logged(int.from_bytes(event.body[:6], "little"))
            if logged is not None and logged.is_captured:
                self._read_again(logged.name, "binlog_row_value_options logs parts of JSON values", True)

    def _read_again(self, table: str, reason: str, skipped: bool = False) -> None:
        if table in self._tables.tables:
            self._again.setdefault(table, Resnapshot(table, reason, skipped))

    # --- rows ---------------------------------------------------------------------------------

    def _rows(self, event: BinlogEvent) -> Iterator[Item | ChangeBlock]:
        rows = read_rows(event)
        logged = self._tables.logged(rows.table_id)
        if logged is None:
            raise RetriableError("the log has rows of a table that it did not describe")
        if logged.name in self._tables.cascades:
            self._cascade(event, logged)
        if not logged.is_captured:
            return
        self._touched[logged.name] = None
        if self._is_held:
            return
        if logged.rows is None or not rows.is_whole:
            reason = logged.reason or "binlog_row_image was not FULL: the log has no whole rows"
            self._read_again(logged.name, reason, True)
            return
        if logged.misfit:
            self._read_again(logged.name, logged.misfit)
        said = self._said(event)
        if logged.layout is not None and rows.columns == len(logged.described.columns):
            yield RowsBlock(rows, logged.rows, logged.layout, self._session.encoder, said)
        else:
            yield from logged.rows.changes(rows, lambda number: source_of_row(said, number))

    def _said(self, event: BinlogEvent) -> bytes:
        """Debezium's members of `source` for MySQL, before the number of the row."""
        stream = self._session.stream
        begin = max(stream.position - event.size, 0)
        said = (event.server_id, str(self.gtid).encode(), stream.file.encode(), begin)
        return b'"server_id":%d,"gtid":"%b","file":"%b","pos":%d,"row":' % said

    def _cascade(self, event: BinlogEvent, logged: LoggedTable) -> None:
        """Rows of other tables that InnoDB has changed with these, and does not log."""
        rules = [each for each in self._tables.cascades[logged.name] if each.child in self._tables.tables]
        rows = read_rows(event)
        if not rules or rows.op == "c":
            return
        changed: set[str] = set()
        if rows.op == "u":
            names = [each.name for each in logged.described.columns]
            if logged.rows is None or not rows.is_whole:
                changed = set(names)
            else:
                at = rows.at
                while at < len(rows.data):
                    before, at = logged.rows.row(rows.data, at)
                    after, at = logged.rows.row(rows.data, at)
                    changed |= {name for name, a, b in zip(names, before, after, strict=True) if a != b}
        for child in touched_by(rules, rows.op, list(changed)):
            self._read_again(child, f"foreign keys to {logged.name} changed rows of it, which is not logged")

    # --- statements ---------------------------------------------------------------------------

    def _statement(self, event: BinlogEvent) -> Iterator[Item]:
        query = read_query(event)
        statement = read_statement(query.schema, query.text)
        match statement.meaning:
            case Meaning.BEGIN:
                self._has_begun = True
                return
            case Meaning.COMMIT:
                self.is_over = True
                return
            case Meaning.ROLLBACK | Meaning.ROLLBACK_PARTLY:
                for each in self._touched:
                    self._read_again(each, "a transaction with tables of several engines was rolled back")
                self.is_over = self.is_over or statement.meaning is Meaning.ROLLBACK
                return
            case Meaning.XA_START:
                self._has_begun = self._is_held = True
                return
            case Meaning.XA_END:
                self._xa = statement.xid
                return
            case Meaning.XA_COMMIT | Meaning.XA_ROLLBACK:
                tables = self._session.xa.pop(statement.xid, [])
                if statement.meaning is Meaning.XA_COMMIT:
                    for each in tables:
                        self._read_again(each, "a prepared XA transaction was committed", True)
                self.has_items = self.has_items or bool(tables)
                self.is_over = True
                return
            case Meaning.NOTHING:
                pass
            case _:
                said = source_of_row(self._said(event), 0)
                yield from self._tables.changed_by(statement, said)
        if not self._has_begun:
            self.is_over = True

    def _prepared(self, *, is_committed: bool) -> None:
        self.is_over = True
        if is_committed:
            for each in self._touched:
                self._read_again(each, "an XA transaction was committed", True)
        elif self._touched:
            self._session.xa[self._xa] = list(self._touched)
