"""What every operator's state has in common: the watermark, the books, its stored form.

State is a pure function of the partials accepted so far and the watermark. What a step
brings is merged before anything looks at it, or keeps it. A delta is that, without what the
step also let go of, and the watermark after it; replaying deltas over a snapshot gives the
state again. Both are Arrow IPC streams,
lz4, with the version in the schema's metadata, one record batch per run; a state without
rows has no columns.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import CorruptionError
from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.layout import CORRECTED, ON_TIME, Layout, layout_of

if TYPE_CHECKING:
    from headrace.streams.operators.operator import WindowOperator

__all__ = ["NO_WATERMARK", "Advance", "OperatorState"]

NO_WATERMARK = -(1 << 63)
_VERSION = b"1"
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """What one step did.

    `changes` has the key columns, `window_start`, `window_end` (for sliding windows
    `_partition` and `_offset` too), `kind` int8 (0 close, 1 early update, 2 correction,
    3 retraction), and the structs `before` and `after` of the aggregates, null where
    there was or is no result. Retractions come first. `delta` replays the step.
    `corrected_rows` are rows classified as on time whose deadline the operator's
    watermark had passed (their partition had been idle). `dropped` are partials whose
    state was gone for the same reason: keys, `window_start`, `window_end`, and how many
    of their rows had been classified as `on_time` and as `corrected`.
    """

    changes: pa.Table | None
    delta: bytes
    corrected_rows: int
    dropped: pa.Table | None


class OperatorState(ABC):
    """The open and kept windows of one bucket of keys. One user at a time.

    A step that raises leaves it undefined: load it again.
    """

    def __init__(self, operator: "WindowOperator") -> None:
        self.operator = operator
        self.watermark_us = NO_WATERMARK
        self._layout: Layout | None = None

    @property
    @abstractmethod
    def row_count(self) -> int:
        """Rows held, before those of one key are merged."""

    @abstractmethod
    def _deadlines(self, table: pa.Table) -> Ints:
        """The deadline of each row of a partial."""

    @abstractmethod
    def _windows(self, table: pa.Table) -> list[pa.Array]:
        """Where each row of a partial begins and ends, for the books."""

    @abstractmethod
    def _condensed(self, tables: Sequence[pa.Table]) -> list[pa.Table]:
        """Partials merged as far as that makes them fewer: runs, of which each row of state is made."""

    @abstractmethod
    def _add(self, tables: Sequence[pa.Table]) -> None:
        """Takes partials in, quietly."""

    @abstractmethod
    def _changed(self, tables: Sequence[pa.Table], watermark_us: int) -> pa.Table | None:
        """Takes partials in; what they and the watermark, which is still to be moved, change."""

    @abstractmethod
    def _forget(self) -> None:
        """Lets go of what the watermark has left behind for good."""

    def _lasting(self, tables: Sequence[pa.Table], watermark_us: int) -> Sequence[pa.Table]:  # noqa: ARG002
        """Of partials, what is still held once the watermark is here; all, where that is not plain."""
        return tables

    @abstractmethod
    def _tables(self) -> Sequence[pa.Table]:
        """Everything held, as partials."""

    def advance(self, partials: Sequence[pa.Table], watermark_us: int | None) -> Advance:
        """Merges the partials, then moves the watermark (never back) and publishes what is due."""
        watermark_us = max(self.watermark_us, NO_WATERMARK if watermark_us is None else watermark_us)
        tables, dropped, corrected_rows = self._admitted(self._with_rows(partials))
        tables = self._condensed(tables)
        delta = _encode(self._lasting(tables, watermark_us), watermark_us)
        changes = self._changed(tables, watermark_us) if self._layout is not None else None
        self.watermark_us = watermark_us
        self._forget()
        return Advance(changes=changes, delta=delta, corrected_rows=corrected_rows, dropped=dropped)

    def snapshot(self) -> bytes:
        """Everything held; `WindowOperator.load` takes it."""
        return _encode(self._tables(), self.watermark_us)

    def replay(self, stored: bytes) -> None:
        """Takes in a snapshot, or the delta of a step."""
        tables, watermark_us = _decode(stored)
        self._add(self._with_rows(tables))
        self.watermark_us = watermark_us
        self._forget()

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            raise ValueError("state without rows has no layout")
        return self._layout

    def _with_rows(self, partials: Sequence[pa.Table]) -> list[pa.Table]:
        tables = [table for table in partials if table.num_rows]
        if tables and self._layout is None:
            operator = self.operator
            self._layout = layout_of(operator.keys, operator.places, operator.aggregates, tables[0])
        return tables

    def _admitted(self, tables: Sequence[pa.Table]) -> tuple[list[pa.Table], pa.Table | None, int]:
        """Sets aside what came too late for the state that is left; counts what came after its window."""
        kept, dropped, corrected_rows = [], [], 0
        for table in tables:
            due = self._deadlines(table)
            passed = due <= self.watermark_us
            gone = due + self.operator.keep_us <= self.watermark_us
            if passed.any():
                corrected_rows += int(numbers(table, ON_TIME)[passed & ~gone].sum())
            if gone.any():
                dropped.append(self._books(table.filter(pa.array(gone))))
                table = table.filter(pa.array(~gone))
            if table.num_rows:
                kept.append(table)
        return kept, pa.concat_tables(dropped).combine_chunks() if dropped else None, corrected_rows

    def _books(self, table: pa.Table) -> pa.Table:
        start, end = self._windows(table)
        keys = {name: table[name] for name in self.operator.keys}
        counts = {"on_time": table[ON_TIME], "corrected": table[CORRECTED]}
        return pa.table({**keys, "window_start": start, "window_end": end, **counts})


def _encode(tables: Sequence[pa.Table], watermark_us: int) -> bytes:
    """One record batch per run, since each is ordered by itself."""
    schema = tables[0].schema if tables else pa.schema([])
    marks = {b"headrace.state": _VERSION, b"headrace.watermark": b"%d" % watermark_us}
    schema = schema.with_metadata({**(schema.metadata or {}), **marks})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_LZ4) as writer:
        for table in tables:
            writer.write_table(table.replace_schema_metadata(schema.metadata).combine_chunks())
    return bytes(sink.getvalue().to_pybytes())


def _decode(stored: bytes) -> tuple[list[pa.Table], int]:
    try:
        with pa.ipc.open_stream(stored) as reader:
            metadata = dict(reader.schema.metadata or {})
            batches = list(reader)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptionError(f"stored state cannot be read: {error}") from error
    version = metadata.pop(b"headrace.state", None)
    if version != _VERSION:
        raise CorruptionError(
            f"stored state has version {version!r}, this release reads {_VERSION!r}; "
            "rebuild the view from the log"
        )
    watermark_us = int(metadata.pop(b"headrace.watermark"))
    return [pa.Table.from_batches([each]).replace_schema_metadata(metadata) for each in batches], watermark_us


def numbers(table: pa.Table, name: str) -> Ints:
    """An int64 column as numpy."""
    return np.asarray(one_chunk(table[name]).to_numpy())
