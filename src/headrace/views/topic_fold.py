"""A view's rows from its changelog. Pure: no I/O, no clock.

Every transaction writes an entry to each partition behind its changes, so a partition
is a row of segments: changes, then the entry they belong to. The view is whole where
all partitions have the same entry.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from headrace.errors import CorruptionError
from headrace.views.json_values import from_json
from headrace.views.schema import ViewSchema
from headrace.views.topic_records import ENTRY_KEY, Entered, read_entry

__all__ = ["Fold"]

Change = tuple[bytes, dict[str, Any] | None]


@dataclass(slots=True)
class _Segments:
    """One partition: what was read and is not yet in the rows."""

    open: list[Change] = field(default_factory=list)
    closed: list[tuple[Entered, list[Change]]] = field(default_factory=list)
    folded: int = -1

    def last(self) -> int:
        return self.closed[-1][0].number if self.closed else self.folded

    def has(self, number: int) -> bool:
        return self.folded == number or any(entered.number == number for entered, _ in self.closed)


class Fold:
    """The rows of a view as of the newest entry that every partition has."""

    def __init__(self, partitions: int) -> None:
        self._partitions = [_Segments() for _ in range(partitions)]
        self._rows: dict[bytes, dict[str, Any]] = {}
        self.entered: Entered | None = None

    def feed(self, partition: int, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Takes the next records of a partition, as key and value; raises CorruptionError."""
        segments = self._partitions[partition]
        for key, value in records:
            if key == ENTRY_KEY:
                segments.closed.append((read_entry(value), segments.open))
                segments.open = []
            elif key is not None:
                segments.open.append((key, _after(value)))

    def settle(self) -> bool:
        """Folds what all partitions have; False if they have no entry in common as yet.

        A transaction reaches its partitions one after the other: False means to read on.
        """
        number = min(each.last() for each in self._partitions)
        if number < 0 or not all(each.has(number) for each in self._partitions):
            return False
        for segments in self._partitions:
            self._fold(segments, number)
        return True

    def rows(self) -> pa.Table:
        """The rows, in no order; empty before the first entry."""
        assert self.entered is not None, "nothing was folded"
        return _table(self.entered.ledger.schema, list(self._rows.values()))

    def _fold(self, segments: _Segments, number: int) -> None:
        while segments.closed and segments.closed[0][0].number <= number:
            entered, changes = segments.closed.pop(0)
            for key, after in changes:
                if after is None:
                    self._rows.pop(key, None)
                else:
                    self._rows[key] = after
            segments.folded = entered.number
            self.entered = entered


def _after(value: bytes | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        after: dict[str, Any] | None = orjson.loads(value)["after"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"a change on a view's topic cannot be read: {error!r}") from error
    return after


def _table(schema: ViewSchema, rows: Sequence[dict[str, Any]]) -> pa.Table:
    columns = [from_json([row[each.name] for row in rows], each.type) for each in schema.columns]
    return pa.table(columns, schema=schema.columns)
