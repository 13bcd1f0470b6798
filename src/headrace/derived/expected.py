"""The rows that a topic holds at some positions, kept in a file: the newest of each key.

What a target must have. It is read from the log alone, so it does not depend on what any
follower did before.
"""

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from headrace.derived.changes import Row, RowChange, merged, read_change
from headrace.derived.spec import Format
from headrace.derived.topic import TopicReader, TopicRecord

__all__ = ["ExpectedRows"]


class ExpectedRows:
    """Rows by key, in a temporary file that is gone after `close`. For one thread."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-")
        self._database = sqlite3.connect(Path(self._folder.name) / "rows.db", isolation_level=None)
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE rows (key BLOB PRIMARY KEY, row BLOB) WITHOUT ROWID")
        self.positions: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()
        self._folder.cleanup()

    def read(
        self,
        reader: TopicReader,
        starts: Mapping[int, int],
        ends: Mapping[int, int],
        style: Format,
        counts: Callable[[TopicRecord], bool] = lambda _: True,
    ) -> None:
        """Takes in the records that count from where it is, or from `starts`, up to `ends`."""
        self._database.execute("BEGIN")
        for partition, end in ends.items():
            start = self.positions.get(partition, starts.get(partition, 0))
            for record in filter(counts, reader.records(partition, start, end)):
                change = read_change(record.key, record.value, style)
                if isinstance(change, RowChange):
                    self.put(change)
            self.positions[partition] = max(start, end)
        self._database.execute("COMMIT")

    def put(self, change: RowChange) -> None:
        """Takes in one change."""
        row = merged(change, self.get(change.key) if change.unchanged else None)
        if row is None:
            self._database.execute("DELETE FROM rows WHERE key = ?", (change.key,))
        else:
            self._database.execute("REPLACE INTO rows VALUES (?, ?)", (change.key, orjson.dumps(row)))

    def get(self, key: bytes) -> Row | None:
        found = self._database.execute("SELECT row FROM rows WHERE key = ?", (key,)).fetchone()
        return None if found is None else orjson.loads(found[0])

    def pop(self, key: bytes) -> Row | None:
        """The row of a key, which it has no longer."""
        found = self.get(key)
        self._database.execute("DELETE FROM rows WHERE key = ?", (key,))
        return found

    def __iter__(self) -> Iterator[tuple[bytes, Row]]:
        for key, row in self._database.execute("SELECT key, row FROM rows ORDER BY key"):
            yield key, orjson.loads(row)
