"""The keys of subjects, in a database of their own.

| table | what it has |
|---|---|
| `keys` | the key of each subject, encrypted with the master key |
| `forgotten` | which subjects were forgotten, in order, so that other processes drop what they remember |
| `forgetting` | what is being forgotten, and the next step (`forget.py`) |
| `store` | a value that shows whether the master key is the right one |

Subjects are named by a value derived from their names and the master key, so the file does not reveal
whose keys it has. Every row is authenticated by the master key: a damaged or exchanged one is found when
it is read. Deleted rows are overwritten (`secure_delete`), and there is no write-ahead log that could keep
them.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from headrace.errors import ConfigError, CorruptionError, RequestError, RetriableError
from headrace.personal.cipher import (
    ID_BYTES,
    KEY_BYTES,
    derive,
    is_sealed,
    key_id_of,
    open_value,
    seal_value,
    unwrap,
    wrap,
)

__all__ = ["SHARED_STATES", "KeyStore", "SubjectKey"]

# The subject of what belongs to several: it is forgotten with each of them.
SHARED_STATES: Final = "\x00states"
_BUSY_TIMEOUT_S: Final = 30.0
_MOST_CACHED: Final = 100_000
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS keys (
    subject BLOB PRIMARY KEY, id BLOB NOT NULL UNIQUE, wrapped BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forgotten (
    number INTEGER PRIMARY KEY AUTOINCREMENT, subject BLOB NOT NULL, at_ms INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS forgetting (
    subject BLOB PRIMARY KEY, step INTEGER NOT NULL, details BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS store (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""


class SubjectKey(NamedTuple):
    """A key, its id, and whose it is."""

    id: bytes
    key: bytes
    subject: bytes


class KeyStore:
    """Seals and opens values; makes the key of a subject when it is first needed. Safe for threads.

    A key is on disk before it is used. What other processes have forgotten is forgotten here, too,
    from the next call on.
    """

    def __init__(self, path: Path, master: bytes) -> None:
        self.path = path
        self._wrapping = derive(master, "keys")
        self._naming = derive(master, "subjects")
        self.signing = derive(master, "receipts")
        self._lock = threading.RLock()
        self._cached: dict[bytes, SubjectKey] = {}
        self._by_id: dict[bytes, SubjectKey] = {}
        self._forgotten: dict[bytes, int] = {}
        self._seen = 0
        self._database = self._open(path)

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._database.close()

    def subject_name(self, subject: str) -> bytes:
        """How the store names a subject."""
        return derive(self._naming, "name", subject.encode())

    # --- sealing and opening ------------------------------------------------------------------

    def seal(self, subject: str, value: Any, *, known: int | None = None) -> str:
        """The value as text that only the key of this subject opens; JSON must be able to hold the value.

        With `known` (see `forgotten`), raises RetriableError if the subject was forgotten after that:
        what the caller has of it must go first.
        """
        if not subject:
            raise RequestError("a personal value belongs to a subject, whose name is not empty")
        found = self.key_of(subject)
        if known is not None and self.forgotten(subject) > known:
            raise RetriableError("a subject was forgotten; its entity is read again")
        return seal_value(found.id, found.key, value)

    def open(self, sealed: str, *, subject: str | None = None) -> Any:
        """The value; None if its subject was forgotten, or if it is not that of this `subject`.

        Raises CorruptionError if the text was changed.
        """
        key_id = key_id_of(sealed) if is_sealed(sealed) else None
        if key_id is None:
            raise CorruptionError("this is not a sealed value, or it is cut short")
        found = self._key_by_id(key_id)
        if found is None or (subject is not None and found.subject != self.subject_name(subject)):
            return None
        return open_value(found.key, sealed)

    def open_all(self, value: Any) -> Any:
        """The same value with every sealed one inside opened; those of forgotten subjects are None."""
        if is_sealed(value):
            return self.open(value)
        if isinstance(value, dict):
            return {name: self.open_all(each) for name, each in value.items()}
        return [self.open_all(each) for each in value] if isinstance(value, list) else value

    def forgotten(self, subject: str | None = None) -> int:
        """The number of the last time that this subject, or any, was forgotten; 0 if it never was."""
        with self._lock:
            self._refresh()
            return self._seen if subject is None else self._forgotten.get(self.subject_name(subject), 0)

    # --- keys ---------------------------------------------------------------------------------

    def key_of(self, subject: str) -> SubjectKey:
        """The key of a subject, made if it has none."""
        name = self.subject_name(subject)
        with self._lock:
            self._refresh()
            found = self._cached.get(name) or self._load("subject", name)
            if found is None:
                with self.transaction() as database:  # another process may have made it meanwhile
                    found = self._load("subject", name) or self._make(database, name)
            return self._cache(found)

    def has_key(self, subject: str) -> bool:
        """Whether anything of this subject can be read."""
        with self._lock:
            return self._load("subject", self.subject_name(subject)) is not None

    def has_key_id(self, key_id: bytes) -> bool:
        """Whether the key with this id is in the store."""
        with self._lock:
            return self._load("id", key_id) is not None

    def destroy(self, database: sqlite3.Connection, subject: bytes, at_ms: int) -> list[bytes]:
        """Deletes the keys of a subject, and of states that may have something of it; the ids of the keys."""
        gone = []
        for name in (subject, self.subject_name(SHARED_STATES)):
            gone += [row[0] for row in database.execute("SELECT id FROM keys WHERE subject = ?", (name,))]
            database.execute("DELETE FROM keys WHERE subject = ?", (name,))
            database.execute("INSERT INTO forgotten (subject, at_ms) VALUES (?, ?)", (name, at_ms))
        return gone

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction, on disk when it is left; nothing of it if an exception leaves it."""
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def tidy(self) -> None:
        """Writes the file again without anything that was deleted."""
        with self._lock:
            self._database.execute("VACUUM")

    def wrap(self, data: bytes, about: bytes) -> bytes:
        """Encrypts something for this store."""
        return wrap(self._wrapping, data, about)

    def unwrap(self, data: bytes, about: bytes) -> bytes:
        """What was encrypted; raises CorruptionError if it was changed."""
        try:
            return unwrap(self._wrapping, data, about)
        except ValueError as error:
            raise CorruptionError(f"{self.path}: a row cannot be read: {error}") from None

    # --- inside -------------------------------------------------------------------------------

    def _open(self, path: Path) -> sqlite3.Connection:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        database = sqlite3.connect(
            path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        try:
            database.execute("PRAGMA secure_delete = ON")
            database.execute("PRAGMA journal_mode = DELETE")
            database.execute("PRAGMA synchronous = FULL")
            database.executescript(_TABLES)
            self._check_master(database)
        except sqlite3.DatabaseError as error:
            database.close()
            raise CorruptionError(
                f"{path} is not the database of keys that was written: {error}; restore it from its backup, "
                "or what it has keys of cannot be read"
            ) from error
        except BaseException:
            database.close()
            raise
        return database

    def _check_master(self, database: sqlite3.Connection) -> None:
        about = b"master"
        database.execute(
            "INSERT OR IGNORE INTO store VALUES ('master', ?)", (wrap(self._wrapping, b"", about),)
        )
        (value,) = database.execute("SELECT value FROM store WHERE name = 'master'").fetchone()
        try:
            unwrap(self._wrapping, value, about)
        except ValueError:
            raise ConfigError(
                f"the master key is not the one that the keys in {self.path} are encrypted with; "
                "set HEADRACE_MASTER_KEY to the one that was used before"
            ) from None

    def _refresh(self) -> None:
        """Learns what was forgotten since, here or elsewhere."""
        rows = self._database.execute(
            "SELECT number, subject FROM forgotten WHERE number > ? ORDER BY number", (self._seen,)
        )
        for number, subject in rows.fetchall():
            self._forgotten[subject] = self._seen = number
            gone = self._cached.pop(subject, None)
            if gone is not None:
                self._by_id.pop(gone.id, None)

    def _key_by_id(self, key_id: bytes) -> SubjectKey | None:
        with self._lock:
            self._refresh()
            found = self._by_id.get(key_id)
            if found is None:
                found = self._load("id", key_id)
                if found is not None:
                    self._cache(found)
            return found

    def _load(self, column: str, value: bytes) -> SubjectKey | None:
        row = self._database.execute(
            f"SELECT id, subject, wrapped FROM keys WHERE {column} = ?",  # noqa: S608 - our own names
            (value,),
        ).fetchone()
        if row is None:
            return None
        key_id, subject, wrapped = row
        return SubjectKey(key_id, self.unwrap(wrapped, subject + key_id), subject)

    def _make(self, database: sqlite3.Connection, subject: bytes) -> SubjectKey:
        made = SubjectKey(os.urandom(ID_BYTES), os.urandom(KEY_BYTES), subject)
        wrapped = wrap(self._wrapping, made.key, subject + made.id)
        database.execute("INSERT INTO keys VALUES (?, ?, ?)", (subject, made.id, wrapped))
        return made

    def _cache(self, key: SubjectKey) -> SubjectKey:
        if len(self._cached) >= _MOST_CACHED:
            self._cached.clear()
            self._by_id.clear()
        self._cached[key.subject] = self._by_id[key.id] = key
        return key
