"""Rows of a table in key order, a chunk at a time, each in a snapshot that says what it contains."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from headrace.capture.change import Change, Position, RowBlock, Transaction
from headrace.capture.postgres.catalog import Table
from headrace.capture.postgres.decode import AnsweredRows, RowWriter, answered_values
from headrace.capture.postgres.visibility import Visibility
from headrace.capture.postgres.wire import Connection, identifier, literal, parse_lsn
from headrace.capture.source import Chunk
from headrace.kernels import RowEncoder

__all__ = ["AwaitedChunk", "read_chunk", "read_gone", "read_rows", "rounded_end"]

T = TypeVar("T")

_CHUNK_BYTES = 16 << 20
_RETRY_S = 0.01
_PAGE_BYTES = 8192
_LONGEST_PAGE_HEAD = 40


@dataclass(frozen=True, slots=True)
class AwaitedChunk:
    """A chunk, and how far the stream must come before it counts."""

    chunk: Chunk
    end_lsn: int


def read_chunk(
    queries: Connection,
    table: Table,
    writer: RowWriter,
    cursor: Sequence[Any] | None,
    most_rows: int,
    is_too_old: Callable[[Visibility], bool],
    encoder: RowEncoder,
) -> AwaitedChunk:
    """The next rows behind `cursor`, as many as fit into `most_rows` and 16 MiB.

    A table without a primary key has no order to go by: none of its rows are read.
    """
    visibility, (data, after) = _in_snapshot(
        queries,
        is_too_old,
        lambda: read_rows(queries, table, cursor, most_rows) if table.key else (b"", None),
    )
    return _awaited(queries, table.full_name, AnsweredRows(data, writer, encoder), after, visibility)


def read_rows(
    queries: Connection, table: Table, cursor: Sequence[Any] | None, most_rows: int
) -> tuple[bytes, Sequence[Any] | None]:
    """The next rows behind `cursor` as messages, in the transaction that is open, and the cursor behind them.

    As many as fit into `most_rows` and 16 MiB; the table has a key.
    """
    (data, last), is_last = _rows(queries, table, cursor, most_rows)
    if is_last or not data:
        return data, None
    places = [next(n for n, each in enumerate(table.columns) if each.name == name) for name in table.key]
    return data, [_cursor_text(each) for each in answered_values(data, last, places)]


def read_gone(
    queries: Connection,
    table: Table,
    writer: RowWriter,
    keys: Sequence[bytes],
    is_too_old: Callable[[Visibility], bool],
) -> AwaitedChunk:
    """Deletes for those of the keys that the table has no row of."""
    wanted = set(keys)
    visibility, found = _in_snapshot(
        queries, is_too_old, lambda: list(_present(queries, table, writer, wanted))
    )
    gone = [each for each in keys if each not in set(found)]
    changes = [Change(table.full_name, "d", each, each, None) for each in gone]
    return _awaited(queries, table.full_name, changes, None, visibility)


def _in_snapshot(
    queries: Connection, is_too_old: Callable[[Visibility], bool], read: Callable[[], T]
) -> tuple[Visibility, T]:
    """What `read` finds in a snapshot that has everything the stream has delivered."""
    while True:
        queries.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        visibility = Visibility.parse(queries.value("SELECT pg_current_snapshot()"))
        if not is_too_old(visibility):
            break
        queries.query("ROLLBACK")
        time.sleep(_RETRY_S)
    found = read()
    queries.query("COMMIT")
    return visibility, found


def _rows(
    queries: Connection, table: Table, cursor: Sequence[Any] | None, most_rows: int
) -> tuple[tuple[bytes, int], bool]:
    """Rows in key order as messages, where the last of them begins, and whether there are no more."""
    columns = ", ".join(identifier(each.name) for each in table.columns)
    key = ", ".join(identifier(each) for each in table.key)
    behind = f" WHERE ({key}) > ({_bounds(table, cursor)})" if cursor else ""
    queries.query(
        f"DECLARE headrace_chunk NO SCROLL CURSOR FOR SELECT {columns} FROM {table.own_rows}{behind} "
        f"ORDER BY {key}"
    )
    parts: list[bytes] = []
    size, rows, count, last, is_last = 0, 0, 1, 0, False
    while rows_left := min(count, most_rows - rows):
        fetched, number, begin = queries.answers(f"FETCH {rows_left} FROM headrace_chunk")
        last = size + begin if number else last
        parts.append(fetched)
        size, rows = size + len(fetched), rows + number
        if number < rows_left:
            is_last = True
            break
        if size >= _CHUNK_BYTES:
            break
        count = _affordable(size, rows, count)
    queries.query("CLOSE headrace_chunk")
    return (b"".join(parts), last), is_last


def _affordable(size: int, rows: int, count: int) -> int:
    """How many rows to ask for next: four times as many, as long as they are likely to fit."""
    likely = (_CHUNK_BYTES - size) * rows // max(size, 1)
    return max(1, min(4 * count, likely))


def _bounds(table: Table, cursor: Sequence[Any]) -> str:
    typed = {each.name: each.type_name for each in table.columns}
    return ", ".join(
        f"{literal(str(text))}::{typed[name]}" for name, text in zip(table.key, cursor, strict=True)
    )


def _cursor_text(value: object) -> str:
    assert isinstance(value, bytes), "a primary key is never null"
    return value.decode()


def _present(queries: Connection, table: Table, writer: RowWriter, wanted: set[bytes]) -> Iterator[bytes]:
    """Which of the keys the table has, as JSON."""
    columns = ", ".join(identifier(each.name) for each in table.columns if each.name in table.key)
    places = [n for n, each in enumerate(table.columns) if each.name in table.key]
    where = _among(table, writer, wanted)
    empty: list[bytes | None] = [None] * len(table.columns)
    for row in queries.stream_rows(f"SELECT {columns} FROM {table.own_rows}{where}"):
        whole = list(empty)
        for place, value in zip(places, row, strict=True):
            whole[place] = value
        key = writer.key_of(tuple(whole))
        if key in wanted:
            assert key is not None
            yield key


_COMPARABLE = ("smallint", "integer", "bigint", "text", "uuid")


def _among(table: Table, writer: RowWriter, wanted: set[bytes]) -> str:
    """Looks keys of one plain column up by the index; others are found by looking at all."""
    if len(writer.key) != 1:
        return ""
    column = table.column(writer.key[0])
    if column is None or not (
        column.type_name in _COMPARABLE or column.type_name.startswith("character varying")
    ):
        return ""
    values = (orjson.loads(each).get(column.name) for each in wanted)
    listed = ", ".join(literal(str(each)) for each in values if each is not None)
    return f" WHERE {identifier(column.name)} IN ({listed})" if listed else " WHERE false"


def _awaited(
    queries: Connection,
    table: str,
    rows: Sequence[Change] | RowBlock,
    cursor: Sequence[Any] | None,
    visibility: Visibility,
) -> AwaitedChunk:
    end_lsn = rounded_end(parse_lsn(queries.value("SELECT pg_current_wal_insert_lsn()")))

    def reached(position: Position) -> bool:
        return int(position["lsn"]) >= end_lsn

    def sees(transaction: Transaction) -> bool:
        return visibility.sees(int(transaction.id.partition(":")[0]))

    chunk = Chunk(
        table=table,
        rows=rows,
        cursor=cursor,
        read_us=time.time_ns() // 1000,
        reached=reached,
        sees=sees,
    )
    return AwaitedChunk(chunk, end_lsn)


def rounded_end(lsn: int) -> int:
    """Where the log ends: at the beginning of a page it is told behind a head that nobody has written yet."""
    return lsn - lsn % _PAGE_BYTES if lsn % _PAGE_BYTES <= _LONGEST_PAGE_HEAD else lsn
