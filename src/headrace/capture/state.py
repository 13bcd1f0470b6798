"""What a capture knows after a crash: one JSON object, written together with the rows it describes. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson

from headrace.capture.change import Position
from headrace.errors import CorruptionError

__all__ = ["CaptureState", "Offsets", "Phase", "TableState", "parse_state"]

_VERSION = 1

# rows: reading them; gone: looking for keys on the topic that the table no longer has; done: changes only
Phase = Literal["rows", "gone", "done"]
Offsets = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """How far the snapshot of a table is. `again` means that the topic had rows before it began."""

    phase: Phase = "rows"
    cursor: Sequence[Any] | None = None
    rows: int = 0
    again: bool = False

    def advanced(self, cursor: Sequence[Any] | None, rows: int) -> "TableState":
        """After a chunk with so many rows; a snapshot taken again looks for keys that are gone next."""
        if cursor is not None:
            return replace(self, cursor=cursor, rows=self.rows + rows)
        after: Phase = "gone" if self.phase == "rows" and self.again else "done"
        read = self.rows + (rows if self.phase == "rows" else 0)
        return replace(self, phase=after, cursor=None, rows=read)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureState:
    """Where the source continues, how far each table's snapshot is, and where every partition ends."""

    position: Position | None = None
    tables: Mapping[str, TableState] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)
    request: str = ""  # the last one to read tables again that was met

    def with_tables(self, captured: Iterable[str], known: Collection[str]) -> "CaptureState":
        """New tables begin with a snapshot; those that are no longer captured are forgotten.

        `known` are those whose topics have rows.
        """
        tables = {each: self.tables.get(each) or TableState(again=each in known) for each in captured}
        return replace(self, tables=tables)

    def resnapshot(self, tables: Iterable[str]) -> "CaptureState":
        """These tables are read again from the beginning."""
        again = {each: TableState(again=True) for each in tables}
        return replace(self, tables={**self.tables, **again})

    def advanced(self, table: str, cursor: Sequence[Any] | None, rows: int) -> "CaptureState":
        """After a chunk of a table was written."""
        return replace(self, tables={**self.tables, table: self.tables[table].advanced(cursor, rows)})

    def loaded(self, table: str, rows: int, *, is_whole: bool) -> "CaptureState":
        """After rows of a table's first load; until it is whole, nothing says where it would continue."""
        progress = replace(self.tables[table], rows=self.tables[table].rows + rows)
        done = progress.advanced(None, 0) if is_whole else progress
        return replace(self, tables={**self.tables, table: done})

    def without_loads(self) -> "CaptureState":
        """Tables whose first load was not whole are at their beginning."""
        tables = {
            name: replace(each, rows=0) if each.phase == "rows" and each.cursor is None else each
            for name, each in self.tables.items()
        }
        return replace(self, tables=tables)

    def with_offsets(self, written: Mapping[tuple[str, int], int]) -> "CaptureState":
        """After records were written to these topics and partitions, up to these offsets."""
        merged = {topic: dict(partitions) for topic, partitions in self.offsets.items()}
        for (topic, partition), next_offset in written.items():
            merged.setdefault(topic, {})[str(partition)] = next_offset
        return replace(self, offsets=merged)

    def next_snapshot(self) -> str | None:
        """The table whose snapshot is next: one at a time, so that each is complete as early as possible."""
        return next((table for table, each in self.tables.items() if each.phase != "done"), None)

    def to_json(self) -> bytes:
        tables = {
            name: {"phase": each.phase, "cursor": each.cursor, "rows": each.rows, "again": each.again}
            for name, each in self.tables.items()
        }
        said = {
            "version": _VERSION,
            "position": self.position,
            "tables": tables,
            "offsets": self.offsets,
            "request": self.request,
        }
        return orjson.dumps(said)


def parse_state(value: bytes) -> CaptureState:
    """The state as it was written; raises CorruptionError if this is none."""
    try:
        said = orjson.loads(value)
        if said["version"] != _VERSION:
            raise CorruptionError(f"a capture's state of version {said['version']}; this is {_VERSION}")
        tables = {name: TableState(**each) for name, each in said["tables"].items()}
        return CaptureState(
            position=said["position"], tables=tables, offsets=said["offsets"], request=said["request"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"not the state of a capture: {error}") from error
