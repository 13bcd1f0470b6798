"""The keys of which a topic has a row now, in order: what is there to be deleted, however many they are."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence

__all__ = ["LiveKeys"]

_CACHE_KIB = 16 << 10
_PAGE = 1_000


class LiveKeys:
    """A set of keys in a temporary file, of which SQLite keeps 16 MiB in memory; the file goes with it.

    For one thread. Keys may be discarded while `pages` is under way.
    """

    def __init__(self) -> None:
        # Without a name, SQLite writes to disk only what does not fit into its cache.
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute("CREATE TABLE live (key BLOB PRIMARY KEY) WITHOUT ROWID")

    def apply(self, newest: Mapping[bytes, bool]) -> None:
        """Takes in the newest records of these keys: whether each has a row."""
        there = [(key,) for key, is_there in newest.items() if is_there]
        gone = [(key,) for key, is_there in newest.items() if not is_there]
        self._file.execute("BEGIN")
        self._file.executemany("INSERT OR IGNORE INTO live VALUES (?)", there)
        self._file.executemany("DELETE FROM live WHERE key = ?", gone)
        self._file.execute("COMMIT")

    def discard(self, key: bytes) -> None:
        """There is no row of this key any longer."""
        self._file.execute("DELETE FROM live WHERE key = ?", (key,))

    def clear(self) -> None:
        """There are no rows any longer."""
        self._file.execute("DELETE FROM live")

    def behind(self, key: bytes, most: int) -> Sequence[bytes]:
        """The next keys in order."""
        found = self._file.execute("SELECT key FROM live WHERE key > ? ORDER BY key LIMIT ?", (key, most))
        return [each for (each,) in found]

    def pages(self) -> Iterator[Sequence[bytes]]:
        """All keys in order, some at a time."""
        last = b""
        while page := self.behind(last, _PAGE):
            yield page
            last = page[-1]

    def __contains__(self, key: object) -> bool:
        return self._file.execute("SELECT 1 FROM live WHERE key = ?", (key,)).fetchone() is not None

    def close(self) -> None:
        self._file.close()
