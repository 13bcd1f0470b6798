"""A database in memory, and the reference implementation of a source: transactions are a list, a position
is an index into it. `on_chunk` is called after a chunk was read, for changes that come in between."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from headrace.capture import (
    Change,
    Chunk,
    Column,
    Lack,
    Lag,
    Position,
    SourceChanged,
    TableSchema,
    Transaction,
)
from headrace.errors import RetriableError

Row = Mapping[str, Any]


class MemoryDatabase:
    def __init__(self, *tables: str, identity: str = "one") -> None:
        self.identity = identity
        self.tables: dict[str, dict[int, Row]] = {each: {} for each in tables}
        self.log: list[list[Change]] = []
        self.is_down = False

    def commit(self, *statements: tuple[str, int | None, Row | None]) -> None:
        """Each statement puts a row of a table under a key, or with None takes it away; with no key, all."""
        changes = []
        for table, key, row in statements:
            if key is None:
                self.tables[table].clear()
                changes.append(Change(table, "t", None, None, None))
                continue
            before = self.tables[table].pop(key, None)
            if row is not None:
                self.tables[table][key] = row
            changes.append(change(table, key, before, row))
        self.log.append(changes)


def change(table: str, key: int, before: Row | None, after: Row | None) -> Change:
    op = "d" if after is None else "c" if before is None else "u"
    return Change(table, op, encoded({"id": key}), encoded(before), encoded(after))


def encoded(row: Row | None) -> bytes | None:
    return None if row is None else orjson.dumps(row)


class MemorySource:
    connector, database, url = "memory", "memory", "memory://"

    def __init__(self, data: MemoryDatabase, on_chunk: Callable[[], None] = lambda: None) -> None:
        self.data, self.on_chunk = data, on_chunk
        self.at = 0
        self.acknowledged: list[int] = []

    def check(self) -> Sequence[Lack]:
        return ()

    def connect(self, position: Position | None) -> Position:
        self._require_up()
        if position is not None and position["identity"] != self.data.identity:
            raise SourceChanged("this is another database; `headrace capture resnapshot`")
        self.at = len(self.data.log) if position is None else position["index"]
        return self._position(self.at)

    def describe(self) -> Mapping[str, TableSchema]:
        return self.schemas()

    def schemas(self) -> Mapping[str, TableSchema]:
        columns = (
            Column(name="id", type="INTEGER", spark_type="bigint", optional=False),
            Column(name="name", type="TEXT", spark_type="string"),
        )
        return {each: TableSchema(table=each, columns=columns, key=("id",)) for each in self.data.tables}

    def first_load(self, tables: Sequence[str]) -> None:
        return None

    def transactions(self, wait_s: float) -> Iterable[Transaction]:
        deadline = time.monotonic() + wait_s
        while self.at == len(self.data.log) and time.monotonic() < deadline:
            time.sleep(0.001)
        while self.at < len(self.data.log):
            self._require_up()
            self.at += 1
            yield Transaction(
                id=str(self.at),
                position=self._position(self.at),
                committed_us=self.at * 1_000_000,
                changes=self.data.log[self.at - 1],
            )

    def read_chunk(self, table: str, cursor: Sequence[Any] | None, most_rows: int) -> Chunk:
        self._require_up()
        after = cursor[0] if cursor else -1
        keys = sorted(each for each in self.data.tables[table] if each > after)[:most_rows]
        rows = [
            Change(table, "r", encoded({"id": each}), None, encoded(self.data.tables[table][each]))
            for each in keys
        ]
        return self._chunk(table, rows, [keys[-1]] if len(keys) == most_rows else None)

    def read_keys(self, table: str, keys: Sequence[bytes]) -> Chunk:
        here = self.data.tables[table]
        rows = [Change(table, "d", each, None, None) for each in keys if orjson.loads(each)["id"] not in here]
        return self._chunk(table, rows, None)

    def _chunk(self, table: str, rows: list[Change], cursor: Sequence[Any] | None) -> Chunk:
        seen = len(self.data.log)
        self.on_chunk()
        until = len(self.data.log)  # as where the position can only be asked for after the rows
        return Chunk(
            table=table,
            rows=rows,
            cursor=cursor,
            read_us=1,
            reached=lambda position: position["index"] >= until,
            sees=lambda transaction: transaction.position["index"] <= seen,
        )

    def count(self, table: str) -> int | None:
        return len(self.data.tables[table])

    def lag(self) -> Lag:
        return Lag(transactions=len(self.data.log) - self.at)

    def acknowledge(self, position: Position) -> None:
        self.acknowledged.append(position["index"])

    def remove(self) -> None: ...

    def close(self) -> None: ...

    def _position(self, index: int) -> Position:
        return {"index": index, "identity": self.data.identity}

    def _require_up(self) -> None:
        if self.data.is_down:
            raise RetriableError("the database is down")
