"""Record batches to Arrow columns, without an object per record.

Where the parts of each record lie is found by a loop in C (`headrace.kernels`), in place:
`lay_out` gives `Records`, whose keys and values are still where the log put them, and are
copied only for those who want a column of them.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headrace import kernels
from headrace.errors import CorruptionError
from headrace.records.batch_header import BATCH_OVERHEAD_BYTES, HEADER_BYTES, read_header
from headrace.records.codec import decompress

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "Places", "Records", "decode_columns", "lay_out"]

COLUMNS = ("offset", "timestamp", "key", "value", "headers")

Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]
Rows = Ints | npt.NDArray[np.bool_] | slice

_MAX_BYTES = (1 << 31) - 1  # places in Arrow's columns have 32 bits
_TIMESTAMP = 1  # the row of them among the parts
_LEAST_RECORD_BYTES = 7  # length, attributes, two deltas, two lengths, a count


@dataclass(frozen=True, slots=True)
class Places:
    """Pieces of one buffer, not copied: where each begins, and its length; length -1 is null."""

    octets: Octets
    starts: Ints
    lengths: Ints

    @classmethod
    def of(cls, column: "pa.Array") -> "Places":
        """The values of a column of bytes, where they are."""
        _, bounds, content = column.buffers()
        octets = np.frombuffer(content, np.uint8) if content else np.zeros(0, np.uint8)
        limits = np.frombuffer(bounds, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
        lengths = np.diff(limits)
        if column.null_count:
            lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
        return cls(octets, limits[:-1], lengths)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> bytes | None:
        start, length = int(self.starts[row]), int(self.lengths[row])
        return None if length < 0 else self.octets[start : start + length].tobytes()

    def at(self, rows: Rows) -> "Places":
        """Some of them."""
        return Places(self.octets, self.starts[rows], self.lengths[rows])

    def where(self, wanted: npt.NDArray[np.bool_]) -> "Places":
        """As many, with nulls in place of those that are not wanted."""
        return Places(self.octets, self.starts, np.where(wanted, self.lengths, -1))

    def column(self) -> "pa.Array":
        """A copy of them all, as a column of bytes."""
        import pyarrow as pa

        bounds, gathered = kernels.gather(self.octets, self.starts, self.lengths)
        is_there = self.lengths >= 0
        valid = None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little"))
        buffers = [valid, pa.py_buffer(bounds), pa.py_buffer(gathered)]
        return pa.Array.from_buffers(pa.binary(), len(self), buffers)


@dataclass(frozen=True, slots=True)
class Records:
    """Records in place; `timestamps` are milliseconds. Made by `lay_out`."""

    offsets: Ints
    timestamps: Ints
    keys: Places
    values: Places
    _header_counts: Ints
    _header_starts: Ints
    _ends: Ints

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def has_headers(self) -> bool:
        """Whether any of them has one."""
        return bool(self._header_counts.any())

    def at(self, rows: Rows) -> "Records":
        """Some of them."""
        parts = (self.keys.at(rows), self.values.at(rows))
        others = (self._header_counts[rows], self._header_starts[rows], self._ends[rows])
        return Records(self.offsets[rows], self.timestamps[rows], *parts, *others)

    def column(self, name: str) -> "pa.Array":
        """One of COLUMNS."""
        import pyarrow as pa

        if name == "offset":
            return pa.array(self.offsets)
        if name == "timestamp":
            return pa.array(self.timestamps).cast(pa.timestamp("ms", tz="UTC"))
        if name == "headers":
            return self._headers()
        return (self.keys if name == "key" else self.values).column()

    def columns(self, names: Collection[str] = COLUMNS) -> "pa.RecordBatch":
        """Several of COLUMNS; each costs time."""
        import pyarrow as pa

        return pa.RecordBatch.from_pydict({name: self.column(name) for name in COLUMNS if name in names})

    def _headers(self) -> "pa.Array":
        import pyarrow as pa

        octets = self.values.octets
        bounds = np.zeros(len(self) + 1, np.int32)
        np.cumsum(self._header_counts, out=bounds[1:])
        rows = np.flatnonzero(self._header_counts)
        found, fitting = kernels.lay_out_headers(
            octets, self._header_counts[rows], self._header_starts[rows], self._ends[rows]
        )
        if fitting < len(rows):
            offset = self.offsets[rows[fitting]]
            raise CorruptionError(f"the headers of the record at offset {offset} do not fit it")
        names, contents = (
            Places(octets, *found[:2]).column().fill_null(b""),
            Places(octets, *found[2:]).column(),
        )
        items = pa.StructArray.from_arrays([_text(names), contents], names=["key", "value"])
        return pa.ListArray.from_arrays(pa.array(bounds), items)


def lay_out(
    buffer: bytes | bytearray | memoryview, *, start_offset: int | None = None, end_offset: int | None = None
) -> Records:
    """The records of consecutive whole record batches (format v2), where they are.

    Records outside `start_offset` up to `end_offset` are left out, as are transaction
    markers. Checksums are the caller's business; records that do not fit their batch raise
    CorruptionError. The buffer must not change while they are in use.
    """
    octets = np.frombuffer(buffer, np.uint8)
    parts = kernels.lay_out_batches(octets)
    if parts is None:
        octets, parts = _lay_out_each(memoryview(buffer))
    if len(octets) > _MAX_BYTES:
        raise CorruptionError(
            f"record batches of {len(octets)} bytes decompressed are too large to read at once"
        )
    offsets, timestamps, key_starts, key_lengths, value_starts, value_lengths, *others = parts
    keys, values = Places(octets, key_starts, key_lengths), Places(octets, value_starts, value_lengths)
    records = Records(offsets, timestamps, keys, values, *others)
    low, high = _range(offsets, start_offset, end_offset)
    return records if high - low == len(records) else records.at(slice(low, high))


def decode_columns(
    buffer: bytes | bytearray | memoryview,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    columns: Collection[str] = COLUMNS,
) -> "pa.RecordBatch":
    """What `lay_out` finds, as columns.

    `offset` int64, `timestamp` in milliseconds UTC, `key` and `value` binary and
    null where the record has none, and `headers`, a list of key and value. pyarrow is
    imported here, lazily: the broker has no need of it.
    """
    return lay_out(buffer, start_offset=start_offset, end_offset=end_offset).columns(columns)


# --- where everything lies --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Section:
    """The records of one batch, decompressed, and what its header says about them."""

    data: bytes
    count: int
    base_offset: int
    base_timestamp: int
    append_timestamp: int | None


def _sections(buffer: memoryview) -> Iterator[_Section]:
    position = 0
    while position < len(buffer):
        header = read_header(buffer, position)
        end = position + header.size_bytes
        if (
            header.magic != 2
            or end > len(buffer)
            or header.batch_length < HEADER_BYTES - BATCH_OVERHEAD_BYTES
        ):
            raise CorruptionError(
                f"no whole record batch at {position}: magic {header.magic}, length {header.batch_length}"
            )
        if not header.is_control:
            yield _Section(
                data=decompress(header.codec, buffer[position + HEADER_BYTES : end]),
                count=header.record_count,
                base_offset=header.base_offset,
                base_timestamp=header.base_timestamp,
                append_timestamp=header.max_timestamp if header.is_append_time else None,
            )
        position = end


def _lay_out_each(buffer: memoryview) -> tuple[Octets, Ints]:
    """Batch by batch, decompressed: the bytes of all, and where in them the parts of records lie."""
    sections = list(_sections(buffer))
    data = b"".join([section.data for section in sections])
    octets = np.frombuffer(data, np.uint8)
    parts = np.empty((kernels.PARTS, _count(sections)), np.int64)
    records = position = 0
    for section in sections:
        rows = slice(records, records + section.count)
        end = position + len(section.data)
        fitting = kernels.lay_out_records(
            octets, position, end, section.count, section.base_offset, section.base_timestamp, parts[:, rows]
        )
        if fitting != section.count:
            raise CorruptionError(_misfit(section, fitting))
        if section.append_timestamp is not None:
            parts[_TIMESTAMP, rows] = section.append_timestamp
        records, position = rows.stop, end
    return octets, parts


def _count(sections: list[_Section]) -> int:
    """All records; no batch may claim more than its bytes can hold, since memory is made for them."""
    for section in sections:
        if not 0 <= section.count <= len(section.data) // _LEAST_RECORD_BYTES:
            raise CorruptionError(
                f"the batch at offset {section.base_offset} has {len(section.data)} bytes, "
                f"too few for {section.count} records"
            )
    return sum(section.count for section in sections)


def _misfit(section: _Section, fitting: int) -> str:
    batch = f"the batch at offset {section.base_offset}"
    if fitting < 0:
        return f"bytes are left over behind the {section.count} records of {batch}"
    return f"record {fitting} of the {section.count} of {batch} does not fit its own length"


def _range(offsets: Ints, start: int | None, end: int | None) -> tuple[int, int]:
    low = 0 if start is None else int(np.searchsorted(offsets, start))
    high = len(offsets) if end is None else int(np.searchsorted(offsets, end))
    return low, max(low, high)


def _text(names: "pa.Array") -> "pa.Array":
    """Names as text; what is not UTF-8 in one is replaced."""
    import pyarrow as pa

    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
