"""Record batches to Arrow columns, without an object per record.

Where the parts of each record lie is found by a loop in C (`headrace.kernels`), which also
copies keys and values from there into columns.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headrace.errors import CorruptionError
from headrace.kernels import arrays as kernels
from headrace.records.codec import decompress
from headrace.records.header import BATCH_OVERHEAD_BYTES, HEADER_BYTES, read_header

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "decode_columns"]

COLUMNS = ("offset", "timestamp", "key", "value", "headers")

Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]

_MAX_BYTES = (1 << 31) - 1  # places in Arrow's columns have 32 bits
_LEAST_RECORD_BYTES = 7  # length, attributes, two deltas, two lengths, a count


@dataclass(frozen=True, slots=True)
class _Section:
    """The records of one batch, decompressed, and what its header says about them."""

    data: bytes
    count: int
    base_offset: int
    base_timestamp: int
    append_timestamp: int | None


def decode_columns(
    buffer: bytes | bytearray | memoryview,
    *,
    start_offset: int | None = None,
    end_offset: int | None = None,
    columns: Collection[str] = COLUMNS,
) -> "pa.RecordBatch":
    """The records of consecutive whole record batches (format v2), as columns.

    `offset` int64, `timestamp` in milliseconds UTC, `key` and `value` binary and
    null where the record has none, and `headers`, a list of key and value; only
    those in `columns`, for each costs time. Records outside `start_offset` up to
    `end_offset` are left out, as are transaction markers.

    Checksums are the caller's business; records that do not fit their batch raise
    CorruptionError. pyarrow is imported here, lazily: the broker has no need of it.
    """
    import pyarrow as pa

    octets = np.frombuffer(buffer, np.uint8)
    parts = kernels.lay_out_batches(octets)
    if parts is None:
        octets, parts = _lay_out_each(memoryview(buffer))
    if len(octets) > _MAX_BYTES:
        raise CorruptionError(
            f"record batches of {len(octets)} bytes decompressed are too large to read at once"
        )
    layout = _Layout(*parts)
    built = {name: _column(name, octets, layout) for name in COLUMNS if name in columns}
    low, high = _range(layout.offsets, start_offset, end_offset)
    return pa.RecordBatch.from_pydict(built).slice(low, high - low)


def _column(name: str, octets: Octets, layout: "_Layout") -> "pa.Array":
    import pyarrow as pa

    if name == "offset":
        return pa.array(layout.offsets)
    if name == "timestamp":
        return pa.array(layout.timestamps).cast(pa.timestamp("ms", tz="UTC"))
    if name == "key":
        return _gather(octets, layout.key_starts, layout.key_lengths)
    if name == "value":
        return _gather(octets, layout.value_starts, layout.value_lengths)
    return _headers(octets, layout)


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


# --- where everything lies --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Layout:
    """For each record its offset and time, and where in the data its parts lie; length -1 is null."""

    offsets: Ints
    timestamps: Ints
    key_starts: Ints
    key_lengths: Ints
    value_starts: Ints
    value_lengths: Ints
    header_counts: Ints
    header_starts: Ints
    ends: Ints


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
            _Layout(*parts).timestamps[rows] = section.append_timestamp
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


# --- into Arrow -------------------------------------------------------------------------------


def _gather(octets: Octets, starts: Ints, lengths: Ints) -> "pa.Array":
    """Binary values from where they lie; length -1 is null."""
    import pyarrow as pa

    bounds, gathered = kernels.gather(octets, starts, lengths)
    is_there = lengths >= 0
    valid = None if is_there.all() else pa.py_buffer(np.packbits(is_there, bitorder="little"))
    buffers = [valid, pa.py_buffer(bounds), pa.py_buffer(gathered)]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers)


def _headers(octets: Octets, layout: _Layout) -> "pa.Array":
    import pyarrow as pa

    offsets = np.zeros(len(layout.ends) + 1, np.int32)
    np.cumsum(layout.header_counts, out=offsets[1:])
    rows = np.flatnonzero(layout.header_counts)
    found, fitting = kernels.lay_out_headers(
        octets, layout.header_counts[rows], layout.header_starts[rows], layout.ends[rows]
    )
    if fitting < len(rows):
        offset = layout.offsets[rows[fitting]]
        raise CorruptionError(f"the headers of the record at offset {offset} do not fit it")
    names, contents = _gather(octets, *found[:2]).fill_null(b""), _gather(octets, *found[2:])
    items = pa.StructArray.from_arrays([_text(names), contents], names=["key", "value"])
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def _text(names: "pa.Array") -> "pa.Array":
    """Names as text; what is not UTF-8 in one is replaced."""
    import pyarrow as pa

    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
