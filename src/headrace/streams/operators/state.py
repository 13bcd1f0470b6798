"""What every operator's state has in common: the watermark, the books, its stored form.

State is a pure function of the partials accepted so far and the watermark. A delta is
therefore the partials of one step and the watermark after it, and replaying deltas over
a snapshot gives the state again. Both are Arrow IPC streams, lz4, with the version in
the schema's metadata; a state without rows has no columns.
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
    """The open and kept windows of one bucket of keys. One user at a time."""

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
    def _step(self, table: pa.Table | None, watermark_us: int, *, quiet: bool) -> pa.Table | None:
        """Takes the rows in, moves the watermark; the changes, unless quiet."""

    @abstractmethod
    def _rows(self) -> pa.Table | None:
        """Everything held."""

    def advance(self, partials: Sequence[pa.Table], watermark_us: int | None) -> Advance:
        """Merges the partials, then moves the watermark (never back) and publishes what is due."""
        watermark_us = max(self.watermark_us, NO_WATERMARK if watermark_us is None else watermark_us)
        table = self._together(partials)
        dropped, corrected_rows = None, 0
        if table is not None:
            table, dropped, corrected_rows = self._admit(table)
        delta = _encode(table, watermark_us)
        changes = self._step(table, watermark_us, quiet=False)
        self.watermark_us = watermark_us
        return Advance(changes=changes, delta=delta, corrected_rows=corrected_rows, dropped=dropped)

    def snapshot(self) -> bytes:
        return _encode(self._rows(), self.watermark_us)

    def restore(self, snapshot: bytes) -> None:
        """Becomes what the snapshot was; for a new state only."""
        table, watermark_us = _decode(snapshot)
        self._step(self._together([table]), NO_WATERMARK, quiet=True)
        self.watermark_us = watermark_us

    def replay(self, delta: bytes) -> None:
        """Takes the step that the delta is of."""
        table, watermark_us = _decode(delta)
        self._step(self._together([table]), watermark_us, quiet=True)
        self.watermark_us = watermark_us

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            raise ValueError("state without rows has no layout")
        return self._layout

    def _together(self, partials: Sequence[pa.Table | None]) -> pa.Table | None:
        tables = [table for table in partials if table is not None and table.num_rows]
        if not tables:
            return None
        if self._layout is None:
            operator = self.operator
            self._layout = layout_of(operator.keys, operator.places, operator.aggregates, tables[0])
        return pa.concat_tables(tables)

    def _admit(self, table: pa.Table) -> tuple[pa.Table | None, pa.Table | None, int]:
        """Sets aside what came too late for the state that is left; counts what came after its window."""
        due = self._deadlines(table)
        passed = due <= self.watermark_us
        if not passed.any():
            return table, None, 0
        gone = due + self.operator.keep_us <= self.watermark_us
        on_time = table[ON_TIME].to_numpy()
        corrected_rows = int(on_time[passed & ~gone].sum())
        if not gone.any():
            return table, None, corrected_rows
        dropped = self._books(table.filter(pa.array(gone)))
        kept = table.filter(pa.array(~gone))
        return kept if kept.num_rows else None, dropped, corrected_rows

    def _books(self, table: pa.Table) -> pa.Table:
        start, end = self._windows(table)
        keys = {name: table[name] for name in self.operator.keys}
        counts = {"on_time": table[ON_TIME], "corrected": table[CORRECTED]}
        return pa.table({**keys, "window_start": start, "window_end": end, **counts}).combine_chunks()


def _encode(table: pa.Table | None, watermark_us: int) -> bytes:
    schema = pa.schema([]) if table is None else table.schema
    metadata = {
        **(schema.metadata or {}),
        b"headrace.state": _VERSION,
        b"headrace.watermark": b"%d" % watermark_us,
    }
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema.with_metadata(metadata), options=_LZ4) as writer:
        if table is not None:
            writer.write_table(table.replace_schema_metadata(metadata))
    return bytes(sink.getvalue().to_pybytes())


def _decode(stored: bytes) -> tuple[pa.Table | None, int]:
    try:
        with pa.ipc.open_stream(stored) as reader:
            table = reader.read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptionError(f"stored state cannot be read: {error}") from error
    metadata = dict(table.schema.metadata or {})
    version = metadata.pop(b"headrace.state", None)
    if version != _VERSION:
        raise CorruptionError(
            f"stored state has version {version!r}, this release reads {_VERSION!r}; "
            "rebuild the view from the log"
        )
    watermark_us = int(metadata.pop(b"headrace.watermark"))
    return (table.replace_schema_metadata(metadata) if table.num_columns else None), watermark_us


def numbers(table: pa.Table, name: str) -> Ints:
    """An int64 column as numpy."""
    return np.asarray(one_chunk(table[name]).to_numpy())
