"""The versions of a table's rows: from when and until when each was valid, and at which offsets.

A version is valid from its event time until that of the next, in the order of event time, partition
and offset, which is that of joins as of a time. At a position of the log, the last version of its
partition before that position counts, as in the table itself. So each version has two spans:

    _valid_from <= t < _valid_to            by time
    _from_offset < next <= _to_offset       by the next offset of partition `_in_partition`

The newest has no end: its `_valid_to` and `_to_offset` are the largest there are. A delete is a version
too, whose `_deleted` is true.

Versions leave once nobody within the history can ask for them: both spans ended before the horizon,
which is the watermark less `keep_us`, rounded down. By offset that is known from the watermark that
the partition had when the next version came, which never goes back within a partition. `_known_at` is
the watermark that it had at least, once a version had come.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.event_time import NO_WATERMARK
from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.hashing import distinct
from headrace.streams.operators.keys import grouped, hashes_of, of_keys
from headrace.streams.operators.operator import DELETED, OperatorStep, decode_state, encode_state, numbers
from headrace.streams.operators.runs import Runs
from headrace.streams.operators.tables.upserts import (
    Upserts,
    UpsertState,
    stamped_changes,
    without_pairs,
)

__all__ = ["SPANS", "TableHistory"]

_TIME = pa.timestamp("us", tz="UTC")
SPANS = pa.schema(
    [
        (DELETED, pa.bool_()),
        ("_valid_from", _TIME),
        ("_valid_to", _TIME),
        ("_in_partition", pa.int32()),
        ("_from_offset", pa.int64()),
        ("_to_offset", pa.int64()),
        ("_known_at", _TIME),
    ]
)
FOREVER_US = 253_402_300_799_999_999  # the end of the year 9999
_LAST_OFFSET = (1 << 63) - 1
_EARLIEST_US = -62_135_596_800_000_000
_STEPS = 64  # in which a history's horizon moves on

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class TableHistory(Upserts):
    """All versions of rows within `keep_us`, each with its spans of time and offsets.

    `lateness_us` is how far a partition's watermark is behind its newest event time.
    """

    lateness_us: int = 0

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        own = super().result(schemas)
        for name in SPANS.names:
            if name in own.names:
                raise RequestError(f"column {name!r} is one of a history's own")
        return pa.schema([*own, *SPANS])

    def new_state(self, schemas: Sequence[pa.Schema]) -> "HistoryState":
        return HistoryState(self, self.result(schemas))

    def horizon(self, watermark_us: int) -> int:
        """What ended before this moment is forgotten; it moves on step by step."""
        if watermark_us == NO_WATERMARK:
            return NO_WATERMARK
        return (watermark_us - self.keep_us) // self.step_us * self.step_us

    @property
    def step_us(self) -> int:
        """The step by which the horizon moves on."""
        return max(self.keep_us // _STEPS, 1_000_000)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "operator": "history", "lateness_us": self.lateness_us}


class HistoryState(UpsertState):
    """The versions of one bucket of keys, deletes among them."""

    def __init__(self, operator: TableHistory, schema: pa.Schema) -> None:
        super().__init__(operator, schema)
        self._history = operator
        self._runs = Runs(_by_hash)
        self._horizon_us = NO_WATERMARK

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:
        rows, self._watermark_us = arrived[0], max(self._watermark_us, watermarks[0])
        changes, parts = [], {}
        if rows is not None and rows.num_rows:
            run = _by_hash(self._hashed(rows))
            before = self._runs.find(distinct(hashes_of(run)))
            known = run.slice(0, 0) if before is None else of_keys(before, run, self._operator.key)
            self._runs.add(run)
            changes.append(self._differences(known, pa.concat_tables([known, run])))
            parts["rows"] = run
        horizon_us = self._history.horizon(self._watermark_us)
        if horizon_us > self._horizon_us:
            changes.append(self._forget(horizon_us))
        found = [each for each in changes if each is not None]
        return OperatorStep(
            changes=pa.concat_tables(found).combine_chunks() if found else None,
            delta=encode_state(parts, {"horizon_us": self._horizon_us}),
        )

    def snapshot(self) -> bytes:
        return encode_state({"rows": self._runs.merged()}, {"horizon_us": self._horizon_us})

    def replay(self, stored: bytes) -> None:
        tables, about = decode_state(stored)
        if "rows" in tables:
            self._runs.add(tables["rows"])
        if about["horizon_us"] > self._horizon_us:
            self._forget(about["horizon_us"])

    def _forget(self, horizon_us: int) -> pa.Table | None:
        """Lets go of what ended before the horizon; what that changes."""
        self._horizon_us = horizon_us
        versions = self._runs.merged()
        if versions is None or not versions.num_rows:
            return None
        gone = self._ended(versions, horizon_us)
        if not gone.any():
            return None
        versions = self._by_offset(versions)  # what stays may have values of what goes
        gone = self._ended(versions, horizon_us)
        left = versions.filter(pa.array(~gone))
        touched = of_keys(versions, versions.filter(pa.array(gone)), self._operator.key)
        self._runs.replace(left.combine_chunks())
        return self._differences(touched, of_keys(left, touched, self._operator.key))

    def _ended(self, versions: pa.Table, horizon_us: int) -> Bools:
        """Which versions nobody can ask for: superseded, by time and by offset, before the horizon."""
        spans = self._spans(versions)
        gone = (spans.valid_to < horizon_us) & (spans.superseded_at < horizon_us)
        # A key whose last word is an old delete goes as a whole, once all before it goes.
        old = _flags(versions, DELETED) & (spans.superseded_at == FOREVER_US)
        old &= (spans.times < horizon_us) & (spans.known_at < horizon_us)
        _, groups = grouped(versions, self._operator.key)
        order = spans.by_key
        whole = groups.maximum((~(gone | old)[order]).astype(np.int64), 0) == 0
        in_whole = np.zeros(len(order), np.bool_)
        in_whole[order] = whole[groups.ids]
        return np.asarray(gone | (old & in_whole))

    def _differences(self, before: pa.Table, after: pa.Table) -> pa.Table | None:
        """What changes between the versions that there were of some keys and those that there are."""
        parts = [
            stamped_changes(self._shown_versions(table), self._schema, weight)
            for table, weight in ((before, -1), (after, 1))
        ]
        key = (*self._operator.key, "_in_partition", "_from_offset")
        changes = without_pairs(pa.concat_tables(parts).combine_chunks(), key)
        return changes if changes.num_rows else None

    def _shown_versions(self, versions: pa.Table) -> pa.Table:
        versions = self._by_offset(versions.combine_chunks())
        spans = self._spans(versions)
        columns = {
            "_valid_from": pa.array(spans.times).cast(_TIME),
            "_valid_to": pa.array(spans.valid_to).cast(_TIME),
            "_in_partition": one_chunk(versions["_partition"]),
            "_from_offset": one_chunk(versions["_offset"]),
            "_to_offset": pa.array(spans.to_offset),
            "_known_at": pa.array(
                np.maximum(spans.known_at, spans.times - self._history.lateness_us).clip(_EARLIEST_US)
            ).cast(_TIME),
        }
        for name, column in columns.items():
            versions = versions.append_column(name, column)
        return versions

    def _spans(self, versions: pa.Table) -> "_Spans":
        return _Spans(versions, self._operator.key)


class _Spans:
    """Of some keys' versions, all of which are there: until when, and until which offset, each counts."""

    def __init__(self, versions: pa.Table, key: Sequence[str]) -> None:
        count = versions.num_rows
        order, groups = grouped(versions, key)
        self.by_key = order
        ids = np.empty(count, np.int64)
        ids[order] = groups.ids
        partitions, offsets = numbers(versions, "_partition"), numbers(versions, "_offset")
        self.times = numbers(versions, "_event_time")
        self.known_at = np.asarray(one_chunk(versions["_watermark"]).fill_null(_EARLIEST_US).to_numpy())
        self.known_at = np.maximum(self.known_at, _EARLIEST_US)
        self.valid_to = np.full(count, FOREVER_US, np.int64)
        ranked = np.lexsort((offsets, partitions, self.times, ids))
        earlier, later = _neighbours(ranked, ids)
        self.valid_to[earlier] = self.times[later]
        self.to_offset = np.full(count, _LAST_OFFSET, np.int64)
        self.superseded_at = np.full(count, FOREVER_US, np.int64)
        ranked = np.lexsort((offsets, partitions, ids))
        earlier, later = _neighbours(ranked, ids, partitions)
        self.to_offset[earlier] = offsets[later]
        self.superseded_at[earlier] = self.known_at[later]


def _neighbours(ranked: Ints, *columns: npt.NDArray[np.generic]) -> tuple[Ints, Ints]:
    """Rows that stand side by side in an order, where they are equal in some columns."""
    earlier, later = ranked[:-1], ranked[1:]
    equal = np.ones(len(earlier), np.bool_)
    for column in columns:
        equal &= column[earlier] == column[later]
    return earlier[equal], later[equal]


def _by_hash(table: pa.Table) -> pa.Table:
    order = np.argsort(hashes_of(table), kind="stable")
    return table.take(pa.array(order)).combine_chunks()


def _flags(table: pa.Table, name: str) -> Bools:
    return np.asarray(one_chunk(table[name]).fill_null(False).to_numpy(zero_copy_only=False))
