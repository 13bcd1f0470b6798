"""The statements that make SQLite record its changes. Pure.

Theory of operation. Three AFTER triggers write each new, changed and deleted row into the change
table, as the raw values in columns c0, c1, … (an update's old ones in p0, p1, …). The sequence
number orders them: SQLite has one writer at a time, so those of a transaction stand together.

REPLACE deletes the rows that are in its way without firing triggers (unless the writer has set
recursive_triggers). Where the row in the way has the same primary key nothing is lost: the
new row takes its place in the topic as it does in the table. For other unique indexes, in tables
without a key, and where a key's collation takes different texts for the same, a BEFORE trigger
notes the rows in the way; an AFTER trigger records those as deleted that are gone by then and
whose deletion was not recorded. A note may outlive its statement (INSERT OR IGNORE): as long as
its row exists it means nothing, and only the newest few are kept.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.capture.sqlite.tables import SqliteTable, Unique, quoted

__all__ = ["Names", "Trigger", "most_columns", "own_tables", "triggers"]

_NOW_MS = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
_NOTES_KEPT = 16
_OWN_COLUMNS = 4  # of the change table: seq, shape, op, at_ms


@dataclass(frozen=True, slots=True)
class Names:
    """What the capture of this name calls its own tables and triggers."""

    capture: str

    @property
    def changes(self) -> str:
        return f"_headrace_{self.capture}_changes"

    @property
    def replaced(self) -> str:
        return f"_headrace_{self.capture}_replaced"

    @property
    def shapes(self) -> str:
        return f"_headrace_{self.capture}_shapes"

    @property
    def meta(self) -> str:
        return f"_headrace_{self.capture}_meta"

    def trigger(self, table: str, event: str) -> str:
        return f"_headrace_{self.capture}_{table}_{event}"


@dataclass(frozen=True, slots=True)
class Trigger:
    name: str
    sql: str


def own_tables(names: Names) -> list[str]:
    """The tables of a capture, where they are missing; columns for values are added as tables need them."""
    return [
        f"CREATE TABLE IF NOT EXISTS {quoted(names.changes)} "
        "(seq INTEGER PRIMARY KEY, shape INTEGER, op TEXT, at_ms INTEGER)",
        f"CREATE TABLE IF NOT EXISTS {quoted(names.replaced)} (note INTEGER PRIMARY KEY, shape INTEGER, row)",
        f"CREATE TABLE IF NOT EXISTS {quoted(names.shapes)} "
        "(shape INTEGER PRIMARY KEY, name TEXT, columns TEXT, key TEXT)",
        f"CREATE TABLE IF NOT EXISTS {quoted(names.meta)} (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    ]


def most_columns(of_a_table: int) -> int:
    """The columns that a captured table may have at most: the change table needs two for each."""
    return (of_a_table - _OWN_COLUMNS) // 2


def triggers(names: Names, table: SqliteTable, shape: int) -> list[Trigger]:
    """All triggers of a table, as of the columns it has now."""
    made = _Statements(names, table, shape)
    events = {"insert": made.after_insert(), "update": made.after_update(), "delete": made.after_delete()}
    if made.in_the_way:
        events |= {"before_insert": made.before_insert(), "before_update": made.before_update()}
    return [
        Trigger(name, f"CREATE TRIGGER {quoted(name)} {sql}")
        for name, sql in ((names.trigger(table.name, event), sql) for event, sql in events.items())
    ]


class _Statements:
    def __init__(self, names: Names, table: SqliteTable, shape: int) -> None:
        self.table, self.shape = table, shape
        self.on = quoted(table.name)
        self.changes, self.replaced = quoted(names.changes), quoted(names.replaced)
        self.columns = [quoted(each) for each in table.names]
        self.new_values = [f"c{each}" for each in range(len(self.columns))]
        self.old_values = [f"p{each}" for each in range(len(self.columns))]
        self.in_the_way = list(table.uniques)
        self.kept = max(_NOTES_KEPT, 4 * len(table.uniques))

    def after_insert(self) -> str:
        gone = self._gone() if self.in_the_way else ""
        return f"AFTER INSERT ON {self.on} BEGIN {gone}{self._record('c', self._of('new'))} END"

    def after_update(self) -> str:
        gone = f"{self._forget('old')}{self._gone()}" if self.in_the_way else ""
        recorded = self._record("u", self._of("new"), self._of("old"))
        return f"AFTER UPDATE ON {self.on} BEGIN {gone}{recorded} END"

    def after_delete(self) -> str:
        forget = self._forget("old") if self.in_the_way else ""
        return f"AFTER DELETE ON {self.on} BEGIN {forget}{self._record('d', self._of('old'))} END"

    def before_insert(self) -> str:
        conflicts = list(self._conflicts(""))
        return (
            f"BEFORE INSERT ON {self.on} WHEN {self._any(conflicts)} BEGIN "
            f"{self._note(' OR '.join(conflicts))} END"
        )

    def before_update(self) -> str:
        conflicts = list(self._conflicts(f" AND NOT ({self._same('o', 'old')})"))
        return (
            f"BEFORE UPDATE ON {self.on} WHEN {self._any(conflicts)} BEGIN "
            f"{self._note(' OR '.join(conflicts))} END"
        )

    # --- parts --------------------------------------------------------------------------------

    def _of(self, row: str) -> list[str]:
        return [f"{row}.{each}" for each in self.columns]

    def _record(self, op: str, new: Sequence[str], old: Sequence[str] = ()) -> str:
        into = ", ".join([*self.new_values, *(self.old_values if old else ())])
        values = ", ".join([*new, *old])
        return (
            f"INSERT INTO {self.changes} (shape, op, at_ms, {into}) "
            f"VALUES ({self.shape}, '{op}', {_NOW_MS}, {values});"
        )

    def _conflicts(self, further: str) -> Iterator[str]:
        """For each unique index, the rows `o` that have the new row's values in it."""
        for unique in self.in_the_way:
            yield f"({' AND '.join(self._equal(unique))}{further})"

    def _equal(self, unique: Unique) -> Iterator[str]:
        fields = ", ".join(f"new.{each} AS {each}" for each in self.columns)
        for term, collation in zip(unique.terms, unique.collations, strict=True):
            if term in self.columns:
                yield f"o.{term} = new.{term} COLLATE {quoted(collation)}"
            else:
                of_old = ", ".join(f"o.{each} AS {each}" for each in self.columns)
                yield (
                    f"(SELECT {term} FROM (SELECT {of_old})) = (SELECT {term} FROM (SELECT {fields})) "
                    f"COLLATE {quoted(collation)}"
                )

    def _any(self, conflicts: Sequence[str]) -> str:
        return " OR ".join(f"EXISTS (SELECT 1 FROM {self.on} o WHERE {each})" for each in conflicts)

    def _note(self, conflict: str) -> str:
        """Notes the rows in the way, each once; a conflict clause here would yield to the statement's."""
        values, note = ", ".join(f"o.{each}" for each in self.columns), self.replaced
        noted = f"{self._is_note_of(note, 'o')} AND ({conflict})"
        return (
            f"DELETE FROM {note} WHERE {note}.shape = {self.shape} "
            f"AND EXISTS (SELECT 1 FROM {self.on} o WHERE {noted}); "
            f"DELETE FROM {self.replaced} "
            f"WHERE note <= (SELECT max(note) FROM {self.replaced}) - {self.kept}; "
            f"INSERT INTO {self.replaced} (shape, row, {', '.join(self.new_values)}) "
            f"SELECT {self.shape}, {self._row('o')}, {values} FROM {self.on} o WHERE {conflict};"
        )

    def _row(self, row: str) -> str:
        return f"{row}.{self.table.rowid}" if self.table.rowid else "NULL"

    def _same(self, one: str, other: str) -> str:
        """Whether two rows of the table are the same one."""
        if self.table.rowid:
            return f"{one}.{self.table.rowid} = {other}.{self.table.rowid}"
        return " AND ".join(f"{one}.{quoted(each)} IS {other}.{quoted(each)}" for each in self.table.key)

    def _is_note_of(self, note: str, row: str) -> str:
        """Whether a note is about this row."""
        if self.table.rowid:
            return f"{note}.row = {row}.{self.table.rowid}"
        at = {name: number for number, name in enumerate(self.table.names)}
        return " AND ".join(f"{note}.c{at[each]} IS {row}.{quoted(each)}" for each in self.table.key)

    def _is_gone(self, note: str) -> str:
        there = f"SELECT 1 FROM {self.on} o WHERE {self._is_note_of(note, 'o')}"
        return f"({self._is_note_of(note, 'new')} OR NOT EXISTS ({there}))"

    def _forget(self, row: str) -> str:
        note = self.replaced
        return f"DELETE FROM {note} WHERE {note}.shape = {self.shape} AND {self._is_note_of(note, row)}; "

    def _gone(self) -> str:
        """Records rows that were replaced as deleted, and forgets their notes."""
        values, note = ", ".join(self.new_values), self.replaced
        return (
            f"INSERT INTO {self.changes} (shape, op, at_ms, {values}) "
            f"SELECT {self.shape}, 'd', {_NOW_MS}, {', '.join(f'k.{each}' for each in self.new_values)} "
            f"FROM {note} k WHERE k.shape = {self.shape} AND {self._is_gone('k')}; "
            f"DELETE FROM {note} WHERE {note}.shape = {self.shape} AND {self._is_gone(note)}; "
        )
