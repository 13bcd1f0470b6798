"""What every operator's state has in common: the watermark, the counters, its stored form.

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
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import CorruptionError
from headrace.streams.event_time import NO_WATERMARK
from headrace.streams.operators.aggregates.layout import CORRECTED, ON_TIME, Layout, layout_of
from headrace.streams.operators.changes import beyond_calendar, change_table
from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.runs import Held, held_rows
from headrace.streams.operators.windows.missed import MISSED_COLUMNS, missed_windows

if TYPE_CHECKING:
    from headrace.streams.operators.windows.operator import WindowOperator

__all__ = ["Advance", "OpenWindows", "decode_windows", "encode_windows", "is_of_windows"]

_VERSION = b"2"  # 1 had no window from which on a row counts
_KIND = b"headrace.state"
_BEYOND = "the window is not within the years 1 to 9999"
_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """What one step did.

    `changes` has the key columns, `window_start`, `window_end` (for sliding windows
    `_partition` and `_offset` too), `kind` int8 (0 close, 1 early update, 2 correction,
    3 retraction), and the structs `before` and `after` of the aggregates, null where
    there was or is no result. Retractions come first. `delta` replays the step.
    `corrected_rows` are rows classified as on time of which a window had been published
    (their partition had been idle). `dropped` are partials for some of whose windows the
    state was gone for the same reason: keys, what `WindowOperator.missed` tells of rows,
    and how many of their rows had been classified as `_on_time`, `_corrected` and `_dropped`.
    `unfit` are results that are due and do not fit their type, so that there is none: keys,
    `_window_start`, `_window_end` and the `_error`.
    """

    changes: pa.Table | None
    delta: bytes
    corrected_rows: int
    dropped: pa.Table | None
    unfit: pa.Table | None = None


class OpenWindows(ABC):
    """The open and kept windows of one bucket of keys. One user at a time.

    A step that raises leaves it undefined: load it again.
    """

    def __init__(self, operator: "WindowOperator") -> None:
        self.operator = operator
        self.watermark_us = NO_WATERMARK
        self._layout: Layout | None = None
        self._unfit: list[pa.Table] = []

    @property
    @abstractmethod
    def row_count(self) -> int:
        """Rows held, before those of one key are merged."""

    def held(self) -> tuple[Held, ...]:
        """The rows held, and the event time of the oldest."""
        found = [held_rows(self._tables(), name) for name in ("_event_time", "_first")]
        oldest_us = min((each.oldest_us for each in found if each.oldest_us is not None), default=None)
        return (Held(self.row_count, oldest_us),)

    @abstractmethod
    def _ends(self, table: pa.Table) -> tuple[Ints, Ints]:
        """The watermarks that end the first and the last window in which each row of a partial counts."""

    @abstractmethod
    def _earliest(self, table: pa.Table) -> tuple[Ints, Ints]:
        """The bounds of that first window; of sliding and session windows the rows' own."""

    def _is_cut(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        """Which rows of a partial were dropped from some of their windows where they were read."""
        return np.zeros(table.num_rows, np.bool_)

    def _cut(self, table: pa.Table, watermark_us: int) -> list[pa.Table]:  # noqa: ARG002
        """Rows of a partial without the windows that this watermark ends; each table is a run."""
        return [table]

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
        delta = encode_windows(self._lasting(tables, watermark_us), watermark_us)
        self._unfit = []
        changes = self._changed(tables, watermark_us) if self._layout is not None else None
        self.watermark_us = watermark_us
        self._forget()
        return Advance(
            changes=changes,
            delta=delta,
            corrected_rows=corrected_rows,
            dropped=dropped,
            unfit=pa.concat_tables(self._unfit) if self._unfit else None,
        )

    def snapshot(self) -> bytes:
        """Everything held; `WindowOperator.load` takes it."""
        return encode_windows(self._tables(), self.watermark_us)

    def replay(self, stored: bytes) -> None:
        """Takes in a snapshot, or the delta of a step."""
        tables, watermark_us = decode_windows(stored)
        self._add(self._with_rows(tables))
        self.watermark_us = watermark_us
        self._forget()

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            raise ValueError("state without rows has no layout")
        return self._layout

    def _published(
        self, table: pa.Table, windows: tuple[Ints, Ints], kinds: Ints | int, before: pa.Array | None
    ) -> pa.Table:
        """The changes to the results of rows of state; those that do not fit are told of, and left out."""
        after = self.layout.finished(table)
        unfit = self.layout.unfit(table) if after.null_count else {}
        unfit |= dict.fromkeys(beyond_calendar(*windows).tolist(), _BEYOND)
        if unfit:
            rows = np.array(list(unfit), np.int64)
            columns = {name: table[name].take(rows) for name in self.operator.keys}
            columns |= {
                name: pa.array(each[rows]) for name, each in zip(MISSED_COLUMNS[:2], windows, strict=True)
            }
            self._unfit.append(pa.table({**columns, "_error": pa.array(list(unfit.values()), pa.string())}))
        return change_table(self.layout, table, windows, kinds, before, after)

    def _with_rows(self, partials: Sequence[pa.Table]) -> list[pa.Table]:
        tables = [table for table in partials if table.num_rows]
        if tables and self._layout is None:
            operator = self.operator
            self._layout = layout_of(operator.keys, operator.places, operator.aggregates, tables[0])
        return tables

    def _admitted(self, tables: Sequence[pa.Table]) -> tuple[list[pa.Table], pa.Table | None, int]:
        """Sets aside what came too late for the state that is left; counts what came after its window."""
        kept, dropped, corrected_rows = [], [], 0
        forgotten_us = max(self.watermark_us - self.operator.keep_us, NO_WATERMARK)
        for table in tables:
            first, last = self._ends(table)
            missed = first <= forgotten_us
            passed = (first <= self.watermark_us) & ~missed
            if passed.any():
                corrected_rows += int(numbers(table, ON_TIME)[passed].sum())
            if missed.any():
                dropped.append(self._counters(table.filter(pa.array(missed)), forgotten_us))
                kept += self._cut(table.filter(pa.array(last > forgotten_us)), forgotten_us)
            else:
                kept.append(table)
        kept = [table for table in kept if table.num_rows]
        return kept, pa.concat_tables(dropped).combine_chunks() if dropped else None, corrected_rows

    def _counters(self, table: pa.Table, forgotten_us: int) -> pa.Table:
        latest = self._ends(table)[1]
        passed = np.full(table.num_rows, forgotten_us)
        missed = missed_windows(self.operator.window, self._earliest(table), latest, passed)
        windows = {name: missed[name] for name in missed.column_names}
        late, is_cut = numbers(table, CORRECTED), self._is_cut(table)
        counts = {
            "_on_time": table[ON_TIME],
            "_corrected": pa.array(np.where(is_cut, 0, late)),
            "_dropped": pa.array(np.where(is_cut, late, 0)),  # these were counted so before
        }
        return pa.table({**{name: table[name] for name in self.operator.keys}, **windows, **counts})


def encode_windows(tables: Sequence[pa.Table], watermark_us: int) -> bytes:
    """One record batch per run, since each is ordered by itself."""
    schema = tables[0].schema if tables else pa.schema([])
    marks = {_KIND: _VERSION, b"headrace.watermark": b"%d" % watermark_us}
    schema = schema.with_metadata({**(schema.metadata or {}), **marks})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_LZ4) as writer:
        for table in tables:
            writer.write_table(table.replace_schema_metadata(schema.metadata).combine_chunks())
    return bytes(sink.getvalue().to_pybytes())


def is_of_windows(stored: bytes) -> bool:
    """Whether a stored state is one of windows, and not of another operator."""
    with pa.ipc.open_stream(stored) as reader:
        return _KIND in (reader.schema.metadata or {})


def decode_windows(stored: bytes) -> tuple[list[pa.Table], int]:
    """What `encode_windows` wrote: the runs, and the watermark."""
    try:
        with pa.ipc.open_stream(stored) as reader:
            metadata = dict(reader.schema.metadata or {})
            batches = list(reader)
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptionError(f"stored state cannot be read: {error}") from error
    version = metadata.pop(_KIND, None)
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
