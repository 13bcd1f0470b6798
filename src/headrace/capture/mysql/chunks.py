"""Rows of a table in key order, a chunk at a time, each in a snapshot of which the place in the log is known.

MariaDB tells the place in the binary log of a snapshot exactly. MySQL tells which transactions were
over before it, and how far the log was after it; one in between may be in the snapshot or not. That
is as good: such a transaction replaces the rows of the chunk that it changed, and it is whole.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from headrace.capture.change import Change, Position, RowBlock, Transaction
from headrace.capture.mysql.catalog import Table, TableColumn
from headrace.capture.mysql.decode import AnsweredRows, GtidSet, Kind, TextRows, text_table
from headrace.capture.mysql.wire import Connection, ServerError, identifier, literal, read_row
from headrace.capture.source import Chunk
from headrace.errors import RetriableError
from headrace.kernels import RowEncoder

__all__ = [
    "AwaitedChunk",
    "Place",
    "log_end",
    "place_of",
    "read_chunk",
    "read_gone",
    "read_rows",
    "snapshot_end",
]

T = TypeVar("T")
Place = tuple[int, int]  # number of the file, and position in it

_CHUNK_BYTES = 16 << 20
_RETRY_S, _PATIENCE_S = 0.01, 30.0
_CHANGED = (1146, 1054, 1412)  # the table is gone, or has other columns, since it was looked at
_SAID = b'"server_id":0,"gtid":null,"file":"%b","pos":%d,"row":0,"thread":null,"query":null'


@dataclass(frozen=True, slots=True)
class AwaitedChunk:
    """A chunk, and how far the stream must come before it counts."""

    chunk: Chunk
    end: Place


@dataclass(frozen=True, slots=True)
class _Snapshot:
    file: str
    position: int
    sees: Callable[[Transaction], bool]


def place_of(file: str, position: int) -> Place:
    """Where this is among all files: their names end with a number that grows."""
    digits = file.rpartition(".")[2]
    return (int(digits) if digits.isdecimal() else 0, position)


def log_end(queries: Connection) -> tuple[str, int]:
    """The file that is written now, and its end."""
    if queries.is_mariadb or queries.greeting.release < (8, 2):
        statement = "SHOW MASTER STATUS"
    else:
        statement = "SHOW BINARY LOG STATUS"
    rows = queries.query(statement)
    if not rows:
        raise RetriableError("the server writes no binary log")
    return rows[0][0] or "", int(rows[0][1] or 0)


def snapshot_end(queries: Connection) -> tuple[str, int]:
    """Where the snapshot of MariaDB that is open is in the log: it has everything before."""
    said = {row[0]: row[1] for row in queries.query("SHOW STATUS LIKE 'binlog_snapshot_%'")}
    return said["Binlog_snapshot_file"] or "", int(said["Binlog_snapshot_position"] or 0)


def read_chunk(
    queries: Connection,
    table: Table,
    cursor: Sequence[Any] | None,
    most_rows: int,
    delivered: Position,
    encoder: RowEncoder,
) -> AwaitedChunk:
    """The next rows behind `cursor`, as many as fit into `most_rows` and 16 MiB.

    `delivered` is what the stream has handed over: the snapshot has all of that. A table without
    a primary key has no order to go by: none of its rows are read.
    """
    snapshot, (rows, after) = _in_snapshot(
        queries, delivered, lambda: read_rows(queries, table, cursor, most_rows) if table.key else ([], None)
    )
    said = _SAID % (snapshot.file.encode(), snapshot.position)
    layout = text_table(table.text_columns, table.key)
    block = AnsweredRows(rows, table.rows(), layout, encoder, said)
    return _awaited(table.full_name, block, after, snapshot)


def read_gone(queries: Connection, table: Table, keys: Sequence[bytes], delivered: Position) -> AwaitedChunk:
    """Deletes for those of the keys that the table has no row of."""
    wanted = set(keys)
    reader = _key_rows(table)
    snapshot, found = _in_snapshot(queries, delivered, lambda: set(_present(queries, table, reader, wanted)))
    changes = [Change(table.full_name, "d", each, each, None) for each in keys if each not in found]
    return _awaited(table.full_name, changes, None, snapshot)


def _in_snapshot(queries: Connection, delivered: Position, read: Callable[[], T]) -> tuple[_Snapshot, T]:
    """What `read` finds in a snapshot that has everything the stream has delivered."""
    try:
        until = time.monotonic() + _PATIENCE_S
        while (snapshot := _begin(queries, delivered)) is None:
            queries.query("ROLLBACK")
            if time.monotonic() > until:
                raise RetriableError("what the binary log has is not visible yet: a commit takes long")
            time.sleep(_RETRY_S)
        found = read()
        queries.query("COMMIT")
    except ServerError as error:
        if error.number in _CHANGED:
            raise RetriableError(str(error)) from error
        raise
    return snapshot, found


def _begin(queries: Connection, delivered: Position) -> _Snapshot | None:
    """A snapshot; None if it lacks what the stream has delivered: a commit is logged before it is visible."""
    if queries.is_mariadb:
        queries.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        file, position = snapshot_end(queries)
        place = place_of(file, position)
        if place < tuple(delivered["last"]):
            return None
        return _Snapshot(file, position, lambda each: _begins_at(each.position) <= place)
    executed = GtidSet.parse(queries.value("SELECT @@global.gtid_executed"))
    if not executed.contains(GtidSet.parse(delivered["gtid"])):
        return None
    queries.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    file, position = log_end(queries)
    return _Snapshot(file, position, lambda each: _is_among(each.id, executed))


def _begins_at(position: Position) -> Place:
    return place_of(position["file"], position["pos"])


def _is_among(transaction_id: str, executed: GtidSet) -> bool:
    origin, _, number = transaction_id.rpartition(":")
    return number.isdecimal() and executed.has(origin, int(number))


# --- rows -----------------------------------------------------------------------------------------


def read_rows(
    queries: Connection, table: Table, cursor: Sequence[Any] | None, most_rows: int
) -> tuple[list[bytes], Sequence[Any] | None]:
    """The next rows behind `cursor` as the server sends them, and the cursor behind them.

    As many as fit into `most_rows` and 16 MiB; the table has a key.
    """
    rows, is_last = _rows(queries, table, cursor, most_rows)
    return rows, None if is_last or not rows else _cursor(table, read_row(rows[-1]))


def _rows(
    queries: Connection, table: Table, cursor: Sequence[Any] | None, most_rows: int
) -> tuple[list[bytes], bool]:
    """Rows in key order as the server has sent them, and whether they are the last."""
    columns = ", ".join(each.selected for each in table.columns)
    key = ", ".join(identifier(each) for each in table.key)
    rows: list[bytes] = []
    size, count = 0, 1
    while wanted := min(count, most_rows - len(rows)):
        behind = f" WHERE {_behind(table, cursor)}" if cursor else ""
        statement = f"SELECT {columns} FROM {table.quoted}{behind} ORDER BY {key} LIMIT {wanted}"
        fetched = list(queries.stream_bodies(statement))
        rows += fetched
        size += sum(map(len, fetched))
        if len(fetched) < wanted:
            return rows, True
        if size >= _CHUNK_BYTES:
            break
        cursor = _cursor(table, read_row(fetched[-1]))
        count = _affordable(size, len(rows), count)
    return rows, False


def _affordable(size: int, rows: int, count: int) -> int:
    """How many rows to ask for next: four times as many, as long as they are likely to fit."""
    likely = (_CHUNK_BYTES - size) * rows // max(size, 1)
    return max(1, min(4 * count, likely))


def _behind(table: Table, cursor: Sequence[Any]) -> str:
    """The rows behind a key, written so that the index is used for more than one column, too."""
    names = [identifier(each) for each in table.key]
    pairs = zip(table.key, cursor, strict=True)
    bounds = [_literal(_key_column(table, name), str(text)) for name, text in pairs]
    either = []
    for place, (name, bound) in enumerate(zip(names, bounds, strict=True)):
        same = [f"{names[n]} = {bounds[n]}" for n in range(place)]
        either.append(" AND ".join([*same, f"{name} > {bound}"]))
    if len(names) == 1:
        return either[0]
    return f"{names[0]} >= {bounds[0]} AND ({' OR '.join(f'({each})' for each in either)})"


def _key_column(table: Table, name: str) -> TableColumn:
    column = table.column(name)
    assert column is not None, "a key has columns of its table"
    return column


def _cursor(table: Table, row: Sequence[bytes | None]) -> list[str]:
    """The key of a row as texts, which `_literal` turns into SQL."""
    texts = []
    for name in table.key:
        place = next(n for n, each in enumerate(table.columns) if each.name == name)
        value = row[place]
        assert value is not None, "a primary key is never null"
        kind = table.columns[place].kind
        if kind in (Kind.BYTES, Kind.BIT, Kind.BITS):
            texts.append(value.hex())
        else:
            texts.append(value.decode())
    return texts


def _literal(column: TableColumn, text: str) -> str:
    match column.kind:
        case Kind.INTEGER | Kind.YEAR | Kind.DECIMAL:
            return text if text.lstrip("-").replace(".", "", 1).isdecimal() else literal(text)
        case Kind.FLOAT | Kind.DOUBLE:
            return f"{float(text)!r}e0" if "e" not in f"{float(text)!r}" else f"{float(text)!r}"
        case Kind.BYTES:
            return f"0x{bytes.fromhex(text).hex()}" if text else "''"
        case Kind.BIT | Kind.BITS:
            return str(int(text or "0", 16))
        case Kind.ENUM:
            return str(column.labels.index(text) + 1 if text else 0)
        case Kind.SET:
            chosen = text.split(",") if text else []
            return str(sum(1 << column.labels.index(each) for each in chosen))
    return literal(text)


# --- keys that are gone ---------------------------------------------------------------------------


def _key_rows(table: Table) -> TextRows:
    columns = [each for each in table.columns if each.name in table.key]
    return TextRows(table.full_name, [each.as_text for each in columns], table.key)


def _present(queries: Connection, table: Table, reader: TextRows, wanted: set[bytes]) -> Iterator[bytes]:
    """Which of the keys the table has, as JSON."""
    columns = ", ".join(each.selected for each in table.columns if each.name in table.key)
    for row in queries.stream_rows(f"SELECT {columns} FROM {table.quoted}{_among(table, wanted)}"):
        key = reader.key_of(reader.row(row))
        if key in wanted:
            assert key is not None
            yield key


def _among(table: Table, wanted: set[bytes]) -> str:
    """Looks keys of one plain column up by the index; others are found by looking at all."""
    if len(table.key) != 1:
        return ""
    column = _key_column(table, table.key[0])
    if column.kind not in (Kind.INTEGER, Kind.TEXT):
        return ""
    values = (orjson.loads(each).get(column.name) for each in wanted)
    listed = ", ".join(_literal(column, str(each)) for each in values if each is not None)
    return f" WHERE {identifier(column.name)} IN ({listed})" if listed else " WHERE false"


def _awaited(
    table: str, rows: Sequence[Change] | RowBlock, cursor: Sequence[Any] | None, snapshot: _Snapshot
) -> AwaitedChunk:
    end = place_of(snapshot.file, snapshot.position)

    def reached(position: Position) -> bool:
        return _begins_at(position) >= end

    chunk = Chunk(
        table=table,
        rows=rows,
        cursor=cursor,
        read_us=time.time_ns() // 1000,
        reached=reached,
        sees=snapshot.sees,
    )
    return AwaitedChunk(chunk, end)
