"""What a reader of a database promises to `CaptureRun`, which does the rest.

Theory of operation. A run calls, from one thread:

    source.connect(position)                 None for the first time: the position from which changes count
    load = source.first_load(tables)         after None, if the source can read whole tables at that position
    loop:
        chunk = source.read_chunk(…)         while a table's snapshot is not done
        for transaction in source.transactions(wait_s): …      written to the log as they come
        source.acknowledge(position)         once the log has everything up to there
    source.close()

**Snapshots.** A chunk is the rows of a key range (or, with `read_keys`, of given keys) in some
consistent state of the database. The run continues with `transactions` until `chunk.reached(position)`,
and drops from the chunk each row whose key was changed by a transaction that `chunk.sees` says it
does not contain; what is left is written, together with the chunk's cursor and the position. So
the source has to make sure of two things only: every transaction that the chunk does not contain
comes out of `transactions` from the chunk on, not before; and `reached` turns true, if need be
by a transaction without changes, once no transaction that the chunk contains can still come.

**A first load** is the rows of whole tables in exactly the state of the database that the position behind
`connect(None)` says, read faster than chunks can be. It ends with the source: tables that were not whole by
then are read in chunks. `transactions` is not called until it is done.

**Failures.** RetriableError (the database is down, busy, restarting): the run closes the source,
waits, and connects again, indefinitely. `SourceChanged`: changes are lost or the database is another
one; the run stops, and says so, until `headrace capture resnapshot`. Other HeadraceErrors stop it.

Messages never contain a password: a source gets its URL with the secret resolved, and shows `url`
without it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.capture.change import Change, Position, RowBlock, TableSchema, Transaction
from headrace.errors import RequestError

__all__ = [
    "Chunk",
    "FirstLoad",
    "FrozenTables",
    "Lack",
    "Lag",
    "LoadedRows",
    "Source",
    "SourceChanged",
    "TablesGone",
]


class SourceChanged(RequestError):  # noqa: N818 - what has happened, not what is wrong
    """Changes were lost, or this is another database: only a new snapshot makes the topics correct again."""


class TablesGone(RequestError):  # noqa: N818 - what has happened
    """Captured tables were dropped, or have other names; `tables` are those that are missing."""

    def __init__(self, tables: Sequence[str], *, now: str = "", are_named: bool) -> None:
        """`now` is the name that a table has now; `are_named` says that the capture names its tables."""
        names = ", ".join(tables)
        if are_named and now:
            todo = f"capture {now} in its place, and it is read under that name"
        elif are_named:
            todo = "take it out of the capture, or create it again and resnapshot it"
        else:
            todo = (
                "`headrace capture resume` goes on without it, and leaves its topic as it is; or give it "
                "its name back, or create it again and resnapshot it"
            )
        what = f"is called {now} now" if now else "is gone, or has another name"
        super().__init__(f"table {names} {what}; {todo}")
        self.tables = tuple(tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Something the database needs before it can be captured, with the statements that provide it."""

    what: str
    statements: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far reading is behind, as far as the source can tell.

    `seconds` is at most how long ago the oldest change that was not read was committed, and `transactions`
    at most how many there are. `held_bytes` is what the database keeps of its log for this reader: more than
    it is behind by, if transactions are open.
    """

    transactions: int | None = None
    changes: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    held_bytes: int | None = None

    @property
    def is_none(self) -> bool:
        """Whether everything was read, as far as the source can tell."""
        return not (self.transactions or self.changes or self.bytes or self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows of one table in one state of the database.

    `rows` have the op `r`, or, for keys that are gone, `d`; they may be one block. `cursor` is
    where the next chunk begins, None after the last; it must survive JSON. See the module's theory of
    operation for `reached` and `sees`.
    """

    table: str
    rows: Sequence[Change] | RowBlock
    cursor: Sequence[Any] | None
    read_us: int
    reached: Callable[[Position], bool]
    sees: Callable[[Transaction], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRows:
    """Some rows of a table's first load; `is_whole` if nothing is left to read of it."""

    table: str
    rows: RowBlock
    is_whole: bool


class FirstLoad(Protocol):
    """Whole tables in one state of the database; see the module's theory of operation."""

    read_us: int

    @property
    def is_done(self) -> bool:
        """Whether every row of every table was handed over."""

    def next(self, wait_s: float) -> LoadedRows | None:
        """What was read next, to be used before the next call; None if nothing was within `wait_s`."""

    def close(self) -> None:
        """Ends it; harmless when repeated."""


class FrozenTables(Protocol):
    """The tables in one state of the database, whatever is written meanwhile."""

    def schemas(self) -> Mapping[str, TableSchema]:
        """The captured tables as they are in it."""

    def rows(self, table: str, chunk_rows: int) -> Iterator[Change]:
        """Every row of a table with a key, in the order of that, as a snapshot would write it.

        About `chunk_rows` of them are in memory at a time.
        """

    def sees(self, said: Mapping[str, Any]) -> bool | None:
        """Whether it contains the change that has this `source` in its envelope; None if that names none."""

    def reached(self, position: Position) -> bool:
        """Whether no change that it contains can still arrive behind the position."""


class Source(Protocol):
    """One database, read by one thread. After an error only `close` is called."""

    connector: str  # as Debezium names it in `source`: "sqlite", "postgresql", "mysql"
    database: str
    url: str  # without the password

    def check(self) -> Sequence[Lack]:
        """What the database lacks; changes nothing there. Empty if a capture can start."""

    def describe(self) -> Mapping[str, TableSchema]:
        """The captured tables as they are now; before `connect`, and without setting anything up."""

    def connect(self, position: Position | None) -> Position:
        """Gets ready to read on from `position`; None: from now on. Returns the position it reads from.

        Sets up what it needs in the database (triggers, a publication and a slot), or raises
        ConfigError with the statements to run. Raises SourceChanged if it cannot continue from there.
        """

    def schemas(self) -> Mapping[str, TableSchema]:
        """The captured tables as they are now."""

    def first_load(self, tables: Sequence[str], /) -> FirstLoad | None:
        """Right after `connect(None)`: the rows of these tables at its position; None: chunks do it."""

    def transactions(self, wait_s: float) -> Iterable[Transaction]:
        """Those committed since, oldest first; ends when there are no more right now.

        Waits up to `wait_s` for the first. A transaction's changes are consumed before the
        next is asked for. The consumer may stop between two: the next call continues there.
        """

    def read_chunk(self, table: str, cursor: Sequence[Any] | None, most_rows: int) -> Chunk:
        """The next rows of a table in key order; from the first with None."""

    def read_keys(self, table: str, keys: Sequence[bytes]) -> Chunk:
        """Of these keys, as JSON, those that are gone, as deletes; the cursor is None."""

    def freeze(self) -> AbstractContextManager[FrozenTables]:
        """The tables as they are now, for as long as the context lasts; without `connect`.

        Changes nothing in the database. Raises RequestError if the source cannot tell which changes
        are contained.
        """

    def count(self, table: str) -> int | None:
        """About how many rows a table has; None if that is expensive to know."""

    def lag(self) -> Lag:
        """How far reading is behind now."""

    def acknowledge(self, position: Position) -> None:
        """The log has everything up to there: what was kept for this reader may go."""

    def remove(self) -> None:
        """Removes from the database what `connect` has set up."""

    def close(self) -> None:
        """Closes connections; harmless when repeated."""
