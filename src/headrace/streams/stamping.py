"""Decoded records of one partition into rows with event time and watermark; no Spark, no I/O.

Every record becomes exactly one thing: a row; a dead letter, with its reason; if it has
the header `headrace.watermark`, a watermark that its producer declares; or nothing, if it
was sent again although it counts already (`headrace.streams.redriven`). Which one depends
on the record alone, never on its neighbours or on how the log was cut.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.watermarks import WATERMARK_HEADER, parse_watermark
from headrace.records.columns import COLUMNS, Places, Records
from headrace.streams.event_time import PartitionTime, row_watermarks
from headrace.streams.json_values import Parsed, parse_json
from headrace.streams.redriven import repetitions
from headrace.streams.spec import PROCESSING_TIME, StreamSpec, rows_schema, value_fields

__all__ = ["DEAD_SCHEMA", "Stamped", "Stamper"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

DEAD_SCHEMA: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("reason", pa.string()),
        ("error", pa.string()),  # what the parser said, where it is a parser that refused
    ]
)
# The years 1 to 9999, which every store and every language can write down.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
_UNITS_US = {"s": 1_000_000, "ms": 1000, "us": 1}
_DAY_US = 86_400_000_000
_UNREADABLE = "the value is not JSON of the schema"
_ERROR_LETTERS = 500  # a parser may quote what it cannot read, which is as long as it is


@dataclass(frozen=True, slots=True)
class Stamped:
    """The rows of a run of records, and what did not become one.

    `keys` and `values` are those of the records behind `rows`, in place, for whoever
    has to send one on. `records` counts all: rows, dead letters, declarations and
    repetitions.
    """

    rows: pa.RecordBatch
    keys: Places
    values: Places
    dead: pa.Table | None
    records: int
    repeated: int = 0

    @property
    def dead_count(self) -> int:
        return 0 if self.dead is None else int(self.dead.num_rows)


class Stamper:
    """Stamps one partition's records, run after run, in the order of their offsets.

    `time` is the partition's after all that was stamped so far. `now_us` is the moment
    the micro-batch was planned, which processing time means.
    """

    def __init__(
        self, spec: StreamSpec, partition: int, time: PartitionTime, *, now_us: int | None = None
    ) -> None:
        self.time = time
        self._spec = spec
        self._partition = partition
        self._now_us = now_us
        self._fields = value_fields(spec)
        self._schema = rows_schema(spec)

    def stamp(self, records: Records) -> Stamped:
        """The rows of these records, which follow those stamped before."""
        parsed = self._parse(records.values)
        appended, absurd = _scaled(records.timestamps, 1000)
        times, faults = self._event_times(parsed, appended)
        headers = records.column("headers") if records.has_headers else None
        declared = {} if headers is None else dict(_declarations(headers))
        errors = {row: error for row, error in _errors(parsed.reasons) if row not in declared}
        bad = _first_reasons([(absurd, "the record's timestamp is out of range"), *faults], errors)
        bad = {row: reason for row, reason in bad.items() if row not in declared}
        bad |= self._refused(declared, appended)
        moved = {
            row: watermark for row, watermark in declared.items() if watermark is not None and row not in bad
        }
        sent_again = () if headers is None else repetitions(headers, self._spec, self._partition)
        repeated = set(sent_again) - bad.keys() - declared.keys()
        kept = _kept(len(records), bad.keys() | declared.keys() | repeated)
        rows = self._rows(records, parsed, appended, times, kept, moved)
        keys, values = records.keys, records.values
        return Stamped(
            rows,
            keys if kept is None else keys.at(kept),
            values if kept is None else values.at(kept),
            self._dead(records, bad, errors),
            len(records),
            len(repeated),
        )

    def _parse(self, values: Places) -> Parsed:
        if len(self._fields):
            return parse_json(values, self._fields)
        return Parsed((), pa.nulls(len(values), pa.string()))

    # --- event time ---------------------------------------------------------------------------

    def _event_times(self, parsed: Parsed, appended: Ints) -> tuple[Ints, list[tuple[Bools | None, str]]]:
        """The event time of each record, and what is wrong with which."""
        spec = self._spec
        if spec.event_time == PROCESSING_TIME:
            if self._now_us is None:
                raise ValueError("processing time needs the moment of the micro-batch")
            return np.full(len(appended), self._now_us, np.int64), []
        nameless = (appended == -1000, "the record has no timestamp")
        if spec.event_time is None:
            return appended, [nameless]
        times, missing = self._column(parsed, spec.event_time)
        faults = [(missing, f"no event time: {spec.event_time} is missing or out of range")]
        if spec.sent_at is not None:
            sent, unsent = self._column(parsed, spec.sent_at)
            faults.append((unsent, f"no clock to correct by: {spec.sent_at} is missing or out of range"))
            times = times + (appended - sent)
            faults.append((_out_of_range(times, 1), "the corrected event time is out of range"))
        ahead = times > appended + min(spec.max_ahead_us, _LAST_US)
        reason = f"the event time is more than {spec.max_ahead_us / 1e6:g} s ahead of the record's timestamp"
        return times, [*faults, nameless, (ahead, reason)]

    def _column(self, parsed: Parsed, name: str) -> tuple[Ints, Bools | None]:
        return _microseconds(parsed.columns[self._fields.names.index(name)])

    def _refused(self, declared: Mapping[int, int | None], appended: Ints) -> dict[int, str]:
        """Declarations that cannot be read, or lie as far ahead as no event may."""
        bad = {}
        for row, watermark in declared.items():
            if watermark is None:
                bad[row] = f"the header {WATERMARK_HEADER} is not milliseconds since the epoch"
            elif watermark > int(appended[row]) + self._spec.max_ahead_us:
                bad[row] = "the watermark declared is too far ahead of the record's timestamp"
        return bad

    # --- rows ---------------------------------------------------------------------------------

    def _rows(
        self,
        records: Records,
        parsed: Parsed,
        appended: Ints,
        times: Ints,
        kept: Ints | None,
        moved: Mapping[int, int],
    ) -> pa.RecordBatch:
        if kept is not None:
            appended, times = appended[kept], times[kept]
        places = [
            (row if kept is None else int(np.searchsorted(kept, row)), moved[row]) for row in sorted(moved)
        ]
        watermarks, self.time = row_watermarks(times, self.time, self._spec.lateness_us, places)
        found = {
            "_topic": pa.repeat(self._spec.topic, len(times)),
            "_partition": pa.repeat(pa.scalar(self._partition, pa.int32()), len(times)),
            "_timestamp": _int64(appended).view(pa.timestamp("us", tz="UTC")),
            "_event_time": _int64(times),
            "_watermark": _int64(watermarks),
        }
        given = {"_offset": "offset", "_key": "key", "_value": "value", "_headers": "headers"}
        found |= {
            name: _at(records.column(column), kept)
            for name, column in given.items()
            if name in self._schema.names
        }
        found |= {
            field.name: _at(column, kept) for field, column in zip(self._fields, parsed.columns, strict=True)
        }
        return pa.RecordBatch.from_arrays([found[name] for name in self._schema.names], schema=self._schema)

    def _dead(self, records: Records, bad: Mapping[int, str], errors: Mapping[int, str]) -> pa.Table | None:
        if not bad:
            return None
        rows = sorted(bad)
        taken = records.at(np.array(rows)).columns()
        columns = {
            "partition": pa.repeat(pa.scalar(self._partition, pa.int32()), len(rows)),
            **{name: taken[name] for name in COLUMNS},
            "reason": pa.array([bad[row] for row in rows], pa.string()),
            "error": pa.array([errors.get(row) for row in rows], pa.string()),
        }
        return pa.table([columns[name] for name in DEAD_SCHEMA.names], schema=DEAD_SCHEMA)


def _declarations(headers: pa.Array) -> Iterator[tuple[int, int | None]]:
    """Records that declare a watermark, in order, and the watermark; None where it cannot be read.

    The last of several headers stands. Costs nothing where no record has a header.
    """
    items = headers.flatten()
    if not len(items):
        return
    named = pc.indices_nonzero(pc.equal(items.field("key"), WATERMARK_HEADER)).to_pylist()
    parents = pc.list_parent_indices(headers)
    for at in named:
        yield parents[at].as_py(), parse_watermark(items.field("value")[at].as_py())


def _errors(reasons: pa.Array) -> Iterator[tuple[int, str]]:
    """The records whose values could not be read, and what the parser said of each."""
    if len(reasons) == reasons.null_count:
        return
    rows = pc.indices_nonzero(pc.is_valid(reasons))
    for row, error in zip(rows.to_pylist(), reasons.take(rows).to_pylist(), strict=True):
        yield row, error[:_ERROR_LETTERS]


def _first_reasons(faults: list[tuple[Bools | None, str]], errors: Mapping[int, str]) -> dict[int, str]:
    """For each record with a fault the first reason; that its value cannot be read comes before all."""
    bad = dict.fromkeys(errors, _UNREADABLE)
    for mask, reason in faults:
        if mask is not None and mask.any():
            for row in np.flatnonzero(mask).tolist():
                bad.setdefault(row, reason)
    return bad


def _microseconds(column: pa.Array) -> tuple[Ints, Bools | None]:
    """Times as microseconds, and which are missing or out of range (those are 0); None if none is."""
    kind = column.type
    unit = _DAY_US if pa.types.is_date32(kind) else 1000
    if pa.types.is_timestamp(kind):
        unit = _UNITS_US[kind.unit]
    unfit = None
    if column.null_count:
        unfit = column.is_null().to_numpy(zero_copy_only=False)
    whole = column.view(pa.int32()) if pa.types.is_date32(kind) else column
    whole = whole.view(pa.int64()) if pa.types.is_timestamp(kind) else whole.cast(pa.int64())
    if column.null_count:
        whole = whole.fill_null(0)
    return _scaled(whole.to_numpy(), unit, unfit)


def _scaled(numbers: Ints, unit: int, unfit: Bools | None = None) -> tuple[Ints, Bools | None]:
    """Times of that many microseconds as microseconds; 0 where out of range, which is unfit too."""
    outside = _out_of_range(numbers, unit)
    if outside is not None:
        unfit = outside if unfit is None else unfit | outside
        numbers = np.where(outside, 0, numbers)
    return (numbers if unit == 1 else numbers * unit), unfit


def _out_of_range(numbers: Ints, unit: int) -> Bools | None:
    if not len(numbers) or (numbers.min() >= _FIRST_US // unit and numbers.max() <= _LAST_US // unit):
        return None
    return (numbers < _FIRST_US // unit) | (numbers > _LAST_US // unit)


def _kept(count: int, aside: set[int]) -> Ints | None:
    """The records that become rows; None if all do."""
    if not aside:
        return None
    kept = np.ones(count, np.bool_)
    kept[list(aside)] = False
    return np.flatnonzero(kept)


def _at(column: pa.Array, rows: Ints | None) -> pa.Array:
    return column if rows is None else column.take(_int64(rows))


def _int64(values: Ints) -> pa.Array:
    """Without `pa.array`, which imports pandas the first time."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
