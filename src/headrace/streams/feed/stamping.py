"""Decoded records of one partition into rows with event time and watermark; no Spark, no I/O.

Every record becomes exactly one thing: a row; a dead letter, with its reason; if it has
the header `headrace.watermark`, a watermark that its producer declares; or nothing, if it
was sent again although it counts already (`headrace.streams.feed.repetitions`). Which one depends
on the record alone, never on its neighbours or on how the log was cut.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.records import COLUMNS, WATERMARK_HEADER, Places, Records, parse_watermark
from headrace.streams.decode.json_values import Parsed, parse_json
from headrace.streams.decode.table_values import TableParsed, parse_table
from headrace.streams.decode.time_expressions import TimeExpression
from headrace.streams.decode.time_functions import Computed
from headrace.streams.decode.years import FIRST_US, LAST_US
from headrace.streams.event_time import PartitionTime, row_watermarks, source_watermarks
from headrace.streams.feed.repetitions import repetitions
from headrace.streams.feed.source_times import SourceTimes
from headrace.streams.spec import (
    DELETED,
    PROCESSING_TIME,
    UNCHANGED,
    StreamSpec,
    field_path,
    field_type,
    rows_schema,
    value_fields,
)

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
        ("error", pa.string()),  # the reason, and what of this value it is, if there is more to say
    ]
)
_UNITS_US = {"s": 1_000_000, "ms": 1000, "us": 1}
_DAY_US = 86_400_000_000
_YEAR_US = 366 * _DAY_US
_FINER = {"s": ("ms", "us", "ns"), "ms": ("us", "ns"), "us": ("ns",), "ns": ()}
_TOMBSTONE = "value is null: a tombstone, with no event time"
_REASON_LETTERS = 500  # names of fields may be long


@dataclass(frozen=True, slots=True)
class Stamped:
    """The rows of a run of records, and what did not become one.

    `keys` and `values` are those of the records behind `rows`, in place, for a caller that
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
        self._expression = _expression_of(spec, self._fields)

    def stamp(self, records: Records) -> Stamped:
        """The rows of these records, which follow those stamped before."""
        parsed, table = self._parse(records)
        appended, absurd = _scaled(records.timestamps, 1000)
        headers = records.column("headers") if records.has_headers else None
        derived = self._derived(headers)
        computed = (
            None if self._expression is None else self._expression.compute(parsed.columns, len(records))
        )
        times, faults = self._event_times(parsed, appended, records.values, derived, table, computed)
        declared = {} if headers is None else dict(_declarations(headers))
        kinds, errors = (
            {row: text for row, text in _said(each) if row not in declared}
            for each in (parsed.kinds, parsed.reasons)
        )
        if computed is not None:
            errors = {row: f"event_time: {why}" for row, why in computed.failed.items()} | errors
        bad = _first_reasons([(absurd, "the record's timestamp is out of range"), *faults], kinds)
        bad = {row: reason for row, reason in bad.items() if row not in declared}
        bad |= self._refused(declared, appended)
        moved = {
            row: watermark for row, watermark in declared.items() if watermark is not None and row not in bad
        }
        sent_again = () if headers is None else repetitions(headers, self._spec, self._partition)
        repeated = set(sent_again) - bad.keys() - declared.keys()
        kept = _kept(len(records), bad.keys() | declared.keys() | repeated)
        times, watermarks = self._watermarks(times, appended, kept, moved, derived)
        rows = self._rows(records, parsed, appended, times, watermarks, kept, table)
        keys, values = records.keys, records.values
        return Stamped(
            rows,
            keys if kept is None else keys.at(kept),
            values if kept is None else values.at(kept),
            self._dead(records, bad, errors),
            len(records),
            len(repeated),
        )

    def _parse(self, records: Records) -> tuple[Parsed, TableParsed | None]:
        spec, values = self._spec, records.values
        if spec.table:
            found = parse_table(
                records.keys, values, self._fields, spec.table_key, style=spec.table, lenient=spec.lenient
            )
            return found.parsed, found
        if len(self._fields):
            return parse_json(values, self._fields, lenient=spec.lenient), None
        none = pa.nulls(len(values), pa.string())
        return Parsed((), none, none), None

    # --- event time ---------------------------------------------------------------------------

    def _derived(self, headers: pa.Array | None) -> SourceTimes | None:
        """What the records that a query made bring along; processing time has no use for it."""
        if headers is None or self._spec.event_time == PROCESSING_TIME:
            return None
        return SourceTimes.of(headers)

    def _event_times(
        self,
        parsed: Parsed,
        appended: Ints,
        values: Places,
        derived: SourceTimes | None,
        table: TableParsed | None,
        computed: Computed | None,
    ) -> tuple[Ints, list[tuple[Bools | None, str]]]:
        """The event time of each record, and what is wrong with which."""
        spec = self._spec
        if spec.event_time == PROCESSING_TIME:
            if self._now_us is None:
                raise ValueError("processing time needs the moment of the micro-batch")
            return np.full(len(appended), self._now_us, np.int64), []
        nameless = (appended == -1000, "the record has no timestamp")
        if table is not None:
            return self._valid_from(parsed, appended, table, computed), [nameless]
        if spec.event_time is None and derived is None:
            return appended, [nameless]
        missing: Bools | None = None
        faults: list[tuple[Bools | None, str]] = []
        if spec.event_time is None:
            assert derived is not None
            times, outside = _scaled(np.where(derived.is_derived, derived.event_times, appended), 1)
            faults.append((outside, "the event time of the row it was made from is out of range"))
        else:
            times, missing = self._own_times(parsed, spec.event_time, computed)
            gone = None if missing is None else missing & (values.lengths < 0)
            faults.append((gone, _TOMBSTONE))
            if computed is not None and computed.failed:
                rows = np.isin(np.arange(len(times)), list(computed.failed))
                faults.append((rows, f"no event time: {spec.event_time} cannot be computed"))
            given = self._field(parsed, spec.event_time) if computed is None else computed.values
            faults += _untimely(given, missing, f"no event time: {spec.event_time}")
        if spec.sent_at is not None:
            sent, unsent = self._column(parsed, spec.sent_at)
            clock = self._field(parsed, spec.sent_at)
            faults += _untimely(clock, unsent, f"no clock to correct by: {spec.sent_at}")
            times = times + (appended - sent)
            faults.append((_out_of_range(times, 1), "the corrected event time is out of range"))
        ahead = times > appended + min(spec.max_ahead_us, LAST_US)
        if derived is not None and spec.follows_maker:
            ahead &= ~derived.is_derived  # the first stage has judged them, and they move no watermark
        reason = f"the event time is more than {spec.max_ahead_us / 1e6:g} s ahead of the record's timestamp"
        odd = (ahead if missing is None else ahead | missing) & (appended > _YEAR_US)
        return times, [*self._of_another_unit(parsed, appended, odd), *faults, nameless, (ahead, reason)]

    def _valid_from(
        self, parsed: Parsed, appended: Ints, table: TableParsed, computed: Computed | None
    ) -> Ints:
        """From when each row of a table is valid: its column, else the source's time, else the record's.

        A time that no calendar has counts as none; a deleted row's column says when the row came, not
        when it went, and so a delete counts from when its source committed it.
        """
        said, outside = _scaled(table.changed_us, 1)
        unsaid = table.changed_us < 0 if outside is None else outside | (table.changed_us < 0)
        times = np.where(unsaid, appended, said)
        if self._spec.event_time is None:
            return times
        own, missing = self._own_times(parsed, self._spec.event_time, computed)
        unknown = table.deleted if missing is None else missing | table.deleted
        return np.where(unknown, times, own)

    def _of_another_unit(self, parsed: Parsed, appended: Ints, odd: Bools) -> Iterator[tuple[Bools, str]]:
        """Of odd event times those that would be of about now, were they in a finer unit than declared."""
        name, declared = self._spec.event_time, self._spec.time_unit
        if not odd.any() or name is None or not self._is_counted(name):
            return
        numbers = self._field(parsed, name).cast(pa.int64()).fill_null(0).to_numpy()
        for unit in _FINER[declared]:
            moments = numbers // 1000 if unit == "ns" else numbers if unit == "us" else numbers * 1000
            reason = (
                f"{name}: far ahead in {declared}, but of about now in {unit}; declare time_unit={unit!r}"
            )
            yield odd & (np.abs(moments - appended) < _YEAR_US), reason

    def _own_times(self, parsed: Parsed, name: str, computed: Computed | None) -> tuple[Ints, Bools | None]:
        """The times in a column, or those that an expression gives."""
        if computed is None:
            return self._column(parsed, name)
        return _microseconds(computed.values, self._spec.time_unit)

    def _is_counted(self, name: str) -> bool:
        """Whether a column of times is of numbers."""
        if self._expression is not None:
            return False
        kind = field_type(self._fields, field_path(self._fields, name))
        return bool(pa.types.is_integer(kind))

    def _column(self, parsed: Parsed, name: str) -> tuple[Ints, Bools | None]:
        return _microseconds(self._field(parsed, name), self._spec.time_unit)

    def _field(self, parsed: Parsed, name: str) -> pa.Array:
        """A column, or what is inside of it."""
        first, *inner = field_path(self._fields, name)
        column = parsed.columns[self._fields.names.index(first)]
        return pc.struct_field(column, inner) if inner else column

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

    def _watermarks(
        self,
        times: Ints,
        appended: Ints,
        kept: Ints | None,
        moved: Mapping[int, int],
        derived: SourceTimes | None,
    ) -> tuple[Ints, Ints]:
        """Event time and watermark of each row; the partition's time goes on to behind them."""
        times = times if kept is None else times[kept]
        lateness_us = self._spec.lateness_us
        places = [
            (row if kept is None else int(np.searchsorted(kept, row)), moved[row]) for row in sorted(moved)
        ]
        if derived is None:
            watermarks, self.time = row_watermarks(times, self.time, lateness_us, places)
            return times, watermarks
        found = derived.at(kept)
        made, others = np.flatnonzero(found.is_derived), np.flatnonzero(~found.is_derived)
        watermarks = np.empty(len(times), np.int64)
        places = [(int(np.searchsorted(others, row)), watermark) for row, watermark in places]
        watermarks[others], self.time = row_watermarks(times[others], self.time, lateness_us, places)
        if self._spec.source_lateness_us is not None:
            longer_us = lateness_us - self._spec.source_lateness_us
            watermarks[made] = found.watermarks_less(longer_us)[made]
        else:
            written = appended[made] if kept is None else appended[kept[made]]
            watermarks[made], self.time = source_watermarks(
                times[made], found.sources[made], written, self.time, lateness_us
            )
        return times, watermarks

    def _rows(
        self,
        records: Records,
        parsed: Parsed,
        appended: Ints,
        times: Ints,
        watermarks: Ints,
        kept: Ints | None,
        table: TableParsed | None,
    ) -> pa.RecordBatch:
        appended = appended if kept is None else appended[kept]
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
        if table is not None:
            found[DELETED] = _at(pa.array(table.deleted), kept)
            found[UNCHANGED] = _at(table.unchanged, kept)
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
            "error": pa.array([_particular(bad[row], errors.get(row)) for row in rows], pa.string()),
        }
        return pa.table([columns[name] for name in DEAD_SCHEMA.names], schema=DEAD_SCHEMA)


def _expression_of(spec: StreamSpec, fields: pa.Schema) -> TimeExpression | None:
    """The expression that gives the event time, if none of the columns does."""
    text = spec.event_time
    if text in (None, PROCESSING_TIME) or field_path(fields, text):
        return None
    return TimeExpression(text, fields)


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


def _particular(kind: str, text: str | None) -> str | None:
    """What is to be said of a record beyond the kind of its fault."""
    return None if text is None or text == kind else text


def _said(reasons: pa.Array) -> Iterator[tuple[int, str]]:
    """The records whose values could not be read, and what is said of each."""
    if len(reasons) == reasons.null_count:
        return
    rows = pc.indices_nonzero(pc.is_valid(reasons))
    for row, error in zip(rows.to_pylist(), reasons.take(rows).to_pylist(), strict=True):
        yield row, error[:_REASON_LETTERS]


def _first_reasons(faults: list[tuple[Bools | None, str]], kinds: Mapping[int, str]) -> dict[int, str]:
    """For each record with a fault the first reason; that its value cannot be read comes before all."""
    bad = dict(kinds)
    for mask, reason in faults:
        if mask is not None and mask.any():
            for row in np.flatnonzero(mask).tolist():
                bad.setdefault(row, reason)
    return bad


def _microseconds(column: pa.Array, time_unit: str) -> tuple[Ints, Bools | None]:
    """Times as microseconds, and which are missing or out of range (those are 0); None if none is.

    Numbers are since the epoch, in `time_unit`.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        time_unit = kind.unit
    unit = _DAY_US if pa.types.is_date32(kind) else _UNITS_US.get(time_unit, 1)
    unfit = None
    if column.null_count:
        unfit = column.is_null().to_numpy(zero_copy_only=False)
    whole = column.view(pa.int32()) if pa.types.is_date32(kind) else column
    whole = whole.view(pa.int64()) if pa.types.is_timestamp(kind) else whole.cast(pa.int64())
    if column.null_count:
        whole = whole.fill_null(0)
    numbers = whole.to_numpy()
    if time_unit == "ns":
        numbers = numbers // 1000
    return _scaled(numbers, unit, unfit)


def _untimely(column: pa.Array, unfit: Bools | None, what: str) -> list[tuple[Bools | None, str]]:
    """Why what a column gives is no time: because nothing is there, or because no calendar has it."""
    if unfit is None:
        return []
    empty = column.is_null().to_numpy(zero_copy_only=False)
    return [(empty, f"{what} is missing or null"), (unfit, f"{what} is outside the years 1 to 9999")]


def _scaled(numbers: Ints, unit: int, unfit: Bools | None = None) -> tuple[Ints, Bools | None]:
    """Times of that many microseconds as microseconds; 0 where out of range, which is unfit too."""
    outside = _out_of_range(numbers, unit)
    if outside is not None:
        unfit = outside if unfit is None else unfit | outside
        numbers = np.where(outside, 0, numbers)
    return (numbers if unit == 1 else numbers * unit), unfit


def _out_of_range(numbers: Ints, unit: int) -> Bools | None:
    if not len(numbers) or (numbers.min() >= FIRST_US // unit and numbers.max() <= LAST_US // unit):
        return None
    return (numbers < FIRST_US // unit) | (numbers > LAST_US // unit)


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
