"""The rows of a projection in memory, and what events change about them. Pure."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from headrace.change_kind import ChangeKind
from headrace.sourcing.projections.columns import plain_value, row_from_plain
from headrace.sourcing.projections.projection import Projection
from headrace.sourcing.records import Event

__all__ = ["Key", "ProjectedRows"]

Key = tuple[Any, ...]
Plain = dict[str, Any]


class ProjectedRows:
    """All rows of a projection; `changes` says what has changed since it was asked last."""

    def __init__(self, projection: Projection) -> None:
        self._projection = projection
        self._rows: dict[Key, Plain] = {}
        self._before: dict[Key, Plain | None] = {}

    @classmethod
    def load(cls, projection: Projection, rows: pa.Table) -> "ProjectedRows":
        """The rows that a store has; raises RequestError if they do not fit."""
        loaded = cls(projection)
        names = projection.schema.value_names()
        for each in rows.select(projection.schema.columns.names).to_pylist(maps_as_pydicts="strict"):
            key = tuple(each[name] for name in projection.key)
            loaded._rows[key] = {name: each[name] for name in names}
        return loaded

    def apply(self, event: Event) -> Key | None:
        """Applies an event; the key of its row, or None if it is not for this projection.

        Raises what the function does, and changes nothing then.

        The function is given a row as the store has it, whether it was there before or not, so that it does
        not matter where the events were cut into batches.
        """
        happened = self._projection.happened(event)
        if happened is None:
            return None
        key = tuple(map(plain_value, self._projection.key_of(happened)))
        before = self._rows.get(key)
        given = None if before is None else row_from_plain(self._projection.row, before)
        after = self._plain(self._projection.function(given, happened))
        self._before.setdefault(key, before)
        if after is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = after
        return key

    def __contains__(self, key: Key) -> bool:
        """Whether there is a row with this key."""
        return key in self._rows

    def _plain(self, row: Any) -> Plain | None:
        if row is None:
            return None
        kind = self._projection.row
        if type(row) is not kind:
            raise TypeError(f"{self._projection.name} returned a {type(row).__name__}, not a {kind.__name__}")
        plain: Plain = plain_value(row)
        row_from_plain(kind, plain)  # a field that is not of its type is found now, at its event
        return plain

    def changes(self) -> pa.Table | None:
        """What has changed since the last call, a row a key; None if nothing has."""
        changed = [
            (key, before, self._rows.get(key))
            for key, before in self._before.items()
            if before != self._rows.get(key)
        ]
        self._before.clear()
        if not changed:
            return None
        struct = pa.struct(list(self._projection.schema.columns))
        return pa.table(
            {
                "kind": pa.array([int(ChangeKind.UPDATE)] * len(changed), pa.int8()),
                "before": pa.array([self._record(key, before) for key, before, _ in changed], struct),
                "after": pa.array([self._record(key, after) for key, _, after in changed], struct),
            }
        )

    def table(self) -> pa.Table:
        """All rows."""
        records = [self._record(key, row) for key, row in self._rows.items()]
        return pa.Table.from_pylist(records, schema=self._projection.schema.columns)

    def __iter__(self) -> Iterator[Key]:
        """The keys of all rows, in the order of `table`."""
        return iter(self._rows)

    def _record(self, key: Key, row: Plain | None) -> Plain | None:
        return None if row is None else dict(zip(self._projection.key, key, strict=True)) | row
