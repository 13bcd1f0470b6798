"""A view's rows from its changelog. Pure: no I/O, no clock.

Every transaction writes a ledger record to each partition after its changes, so a partition
is a sequence of segments: changes, then the ledger record they belong to. The view is
complete where all partitions have the same ledger record.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from headrace.errors import CorruptionError
from headrace.views.formats import from_json
from headrace.views.schema import ViewSchema
from headrace.views.topic.changelog_records import LEDGER_KEY, LedgerRecord, read_ledger_record

__all__ = ["ChangelogRows"]

Change = tuple[bytes, dict[str, Any] | None]


@dataclass(slots=True)
class _Segments:
    """One partition: what has been read and is not in the rows yet."""

    open: list[Change] = field(default_factory=list)
    closed: list[tuple[LedgerRecord, list[Change]]] = field(default_factory=list)
    applied: int = -1

    def last(self) -> int:
        return self.closed[-1][0].number if self.closed else self.applied

    def has(self, number: int) -> bool:
        return self.applied == number or any(entered.number == number for entered, _ in self.closed)


class ChangelogRows:
    """The rows of a view as of the newest ledger record that every partition has."""

    def __init__(self, partitions: int) -> None:
        self._partitions = [_Segments() for _ in range(partitions)]
        self._rows: dict[bytes, dict[str, Any]] = {}
        self.ledger_record: LedgerRecord | None = None

    def feed(self, partition: int, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Takes the next records of a partition, as key and value; raises CorruptionError."""
        segments = self._partitions[partition]
        for key, value in records:
            if key == LEDGER_KEY:
                segments.closed.append((read_ledger_record(value), segments.open))
                segments.open = []
            elif key is not None:
                segments.open.append((key, _after(value)))

    def settle(self) -> bool:
        """Applies what all partitions have; False if they have no ledger record in common yet.

        A transaction reaches its partitions one after the other: False means to read more.
        """
        number = min(each.last() for each in self._partitions)
        if number < 0 or not all(each.has(number) for each in self._partitions):
            return False
        for segments in self._partitions:
            self._apply(segments, number)
        return True

    def rows(self) -> pa.Table:
        """The rows, in no particular order; empty before the first ledger record."""
        assert self.ledger_record is not None, "nothing has been applied"
        return _table(self.ledger_record.ledger.schema, list(self._rows.values()))

    def _apply(self, segments: _Segments, number: int) -> None:
        while segments.closed and segments.closed[0][0].number <= number:
            entered, changes = segments.closed.pop(0)
            for key, after in changes:
                if after is None:
                    self._rows.pop(key, None)
                else:
                    self._rows[key] = after
            segments.applied = entered.number
            self.ledger_record = entered


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
