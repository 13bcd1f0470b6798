"""Record batches to Arrow columns, without an object per record.

Where a record starts is known only from the length of the one before it. That chain
is guessed for all records at once, from the zero bytes that stand before and behind a
record's head, and then verified link by link, all at once too; where the guess does
not hold, a short Python loop follows the chain. Everything else (varints, offsets,
timestamps, where keys and values lie) is computed for all records at once by numpy.
Keys and values are handed to Arrow as views into the batch's own bytes, and Arrow
gathers them.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from headrace.errors import CorruptionError
from headrace.records.codec import decompress
from headrace.records.header import BATCH_OVERHEAD_BYTES, HEADER_BYTES, read_header

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "decode_columns"]

COLUMNS = ("offset", "timestamp", "key", "value", "headers")

Ints = npt.NDArray[np.int64]

_INLINE_BYTES = 12  # Arrow keeps shorter values inside the view itself
_MAX_VARINT_BYTES = 10
_MAX_EVEN_BYTES = 64
_LEAST_RECORD_BYTES = 7  # length, attributes, two deltas, two lengths, a count
_MIN_GUESSED = 16  # the loop is as fast for fewer
_MAX_ZEROS = 8  # with more zeros per record than this, values are binary, and guesses bad


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

    sections = list(_sections(memoryview(buffer)))
    data = b"".join([section.data for section in sections])
    try:
        layout = _lay_out(data, sections)
        built = {name: _column(name, data, layout) for name in COLUMNS if name in columns}
    except IndexError:
        raise CorruptionError("a record reaches beyond the end of its record batch") from None
    low, high = _range(layout.offsets, start_offset, end_offset)
    return pa.RecordBatch.from_pydict(built).slice(low, high - low)


def _column(name: str, data: bytes, layout: "_Layout") -> "pa.Array":
    import pyarrow as pa

    if name == "offset":
        return pa.array(layout.offsets)
    if name == "timestamp":
        return pa.array(layout.timestamps).cast(pa.timestamp("ms", tz="UTC"))
    if name == "key":
        return _gather(data, layout.key_starts, layout.key_lengths)
    if name == "value":
        return _gather(data, layout.value_starts, layout.value_lengths)
    return _headers(data, layout)


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


def _lay_out(data: bytes, sections: list[_Section]) -> _Layout:
    octets = np.frombuffer(data, np.uint8)
    bodies, ends = _record_bodies(data, sections)
    counts = [section.count for section in sections]
    time_deltas, position = _varints(octets, bodies + 1)  # a byte of attributes, unused
    offset_deltas, position = _varints(octets, position)
    key_lengths, key_starts = _varints(octets, position)
    value_lengths, value_starts = _varints(octets, key_starts + np.maximum(key_lengths, 0))
    header_counts, header_starts = _varints(octets, value_starts + np.maximum(value_lengths, 0))
    layout = _Layout(
        offsets=_spread([each.base_offset for each in sections], counts) + offset_deltas,
        timestamps=_timestamps(sections, counts, time_deltas),
        key_starts=key_starts,
        key_lengths=key_lengths,
        value_starts=value_starts,
        value_lengths=value_lengths,
        header_counts=header_counts,
        header_starts=header_starts,
        ends=ends,
    )
    _check(layout)
    return layout


def _record_bodies(data: bytes, sections: list[_Section]) -> tuple[Ints, Ints]:
    """Where every record begins, behind its length, and ends: guessed and proved, or else followed."""
    guessed = _guess_bodies(data, sections)
    if guessed is not None:
        return guessed
    lengths, bodies = _varints(np.frombuffer(data, np.uint8), _follow_starts(data, sections))
    return bodies, bodies + lengths


def _guess_bodies(data: bytes, sections: list[_Section]) -> tuple[Ints, Ints] | None:
    """All positions at once; None unless they are proved to be right.

    A record begins with its length and a zero byte of attributes, and most end with a
    zero, which says that there are no headers. So where two zeros are one or two bytes
    apart, a record may start behind the first, if what lies between is a length. These
    are guesses: a value may hold such bytes. But if the first is the data's beginning, and
    each record ends exactly where the next guess is, and the last at the end of the
    data, then by induction the guesses are the chain; and it must pass through the
    beginning of every batch after as many records as the batches before it have.
    """
    octets = np.frombuffer(data, np.uint8)
    count = sum(section.count for section in sections)
    zeros = np.flatnonzero(octets == 0)
    if count < _MIN_GUESSED or zeros.size > _MAX_ZEROS * count:
        return None
    befores = np.concatenate((np.full(1, -1), zeros[:-1]))
    gaps = zeros - befores
    likely = (gaps == 2) | (gaps == 3)
    starts, bodies = befores[likely] + 1, zeros[likely]
    ends = bodies + _short_lengths(octets, starts, bodies)
    if starts.size != count:
        linked = np.isin(ends, starts) | (ends == len(data))
        starts, bodies, ends = starts[linked], bodies[linked], ends[linked]
    if starts.size != count or starts[0] != 0 or ends[-1] != len(data) or (ends[:-1] != starts[1:]).any():
        return None
    return (bodies, ends) if _meets_batches(starts, sections) else None


def _short_lengths(octets: npt.NDArray[np.uint8], starts: Ints, bodies: Ints) -> Ints:
    """What the one or two bytes from start to body mean as a record's length; 0 if they are none."""
    low, last = octets[starts].astype(np.int64), octets[bodies - 1].astype(np.int64)
    is_long = bodies - starts == 2
    values = np.where(is_long, low & 127 | last << 7, low)
    legal = (values & 1 == 0) & (last < 128) & (is_long == (low > 127))
    return np.where(legal, values >> 1, 0)


def _meets_batches(starts: Ints, sections: list[_Section]) -> bool:
    """Whether the first record of every batch starts where the batch does."""
    records = position = 0
    for section in sections:
        if section.count and starts[records] != position:
            return False
        records += section.count
        position += len(section.data)
    return True


def _follow_starts(data: bytes, sections: list[_Section]) -> Ints:
    """The position of every record, one after the other."""
    starts: list[int] = []
    position = end = 0
    for section in sections:
        end += len(section.data)
        position = _follow(data, position, section.count, starts)
        if position != end:
            raise CorruptionError(
                f"the {section.count} records of the batch at offset {section.base_offset} take "
                f"{len(section.data) + position - end} bytes, not the {len(section.data)} that are there"
            )
    return np.array(starts, np.int64)


def _follow(data: bytes, position: int, count: int, starts: list[int]) -> int:
    """Appends the positions of `count` records; the position behind them.

    The hot loop of reading: lengths of one and two bytes, which is up to 8 kB, are
    written out. Lengths are zigzag, so a legal one is twice itself.
    """
    append = starts.append
    for _ in range(count):
        append(position)
        low = data[position]
        if low < 128:
            position += 1 + (low >> 1)
            continue
        high = data[position + 1]
        if high < 128:
            position += 2 + ((low & 127 | high << 7) >> 1)
        else:
            position = _follow_long(data, position)
    return position


def _follow_long(data: bytes, position: int) -> int:
    value = shift = 0
    for _ in range(_MAX_VARINT_BYTES):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return position + (value >> 1)
    raise CorruptionError("a record's length has more bytes than a varint may have")


def _varints(octets: npt.NDArray[np.uint8], position: Ints) -> tuple[Ints, Ints]:
    """The zigzag varint at each position, and the positions behind them."""
    byte = octets[position]
    value = byte.astype(np.int64)
    position = position + 1
    if byte.size and byte.max() > 127:
        value &= 127
        _add_further_bytes(octets, value, position, byte > 127)
    # An unsigned shift, since a timestamp delta may use all 64 bits.
    unsigned = (value.view(np.uint64) >> np.uint64(1)).view(np.int64)
    return unsigned ^ -(value & 1), position


def _add_further_bytes(
    octets: npt.NDArray[np.uint8], value: Ints, position: Ints, is_longer: npt.NDArray[np.bool_]
) -> None:
    """Completes, in place, the varints of which only the first byte is in `value`."""
    shift = 7
    longer: Ints | slice = slice(None) if is_longer.all() else np.flatnonzero(is_longer)
    while True:
        if shift > 7 * (_MAX_VARINT_BYTES - 1):
            raise CorruptionError("a record holds a varint of more than ten bytes")
        byte = octets[position[longer]]
        value[longer] |= (byte & 127).astype(np.int64) << shift
        position[longer] += 1
        further = byte > 127
        if not further.any():
            return
        longer = np.flatnonzero(further) if isinstance(longer, slice) else longer[further]
        shift += 7


def _spread(per_batch: list[int], counts: list[int]) -> Ints:
    return np.repeat(np.array(per_batch, np.int64), counts)


def _timestamps(sections: list[_Section], counts: list[int], deltas: Ints) -> Ints:
    created = _spread([each.base_timestamp for each in sections], counts) + deltas
    if all(each.append_timestamp is None for each in sections):
        return created
    appended = _spread([each.append_timestamp or 0 for each in sections], counts)
    by_append = np.repeat(np.array([each.append_timestamp is not None for each in sections]), counts)
    return np.where(by_append, appended, created)


def _check(layout: _Layout) -> None:
    """No part of a record may reach beyond it, and nothing may be left over behind it."""
    whole = (
        (layout.key_lengths >= -1)
        & (layout.value_lengths >= -1)
        & (layout.header_counts >= 0)
        & (layout.header_starts <= layout.ends)
        & ((layout.header_counts > 0) | (layout.header_starts == layout.ends))
    )
    if not whole.all():
        offset = layout.offsets[np.flatnonzero(~whole)[0]]
        raise CorruptionError(f"the record at offset {offset} does not fit its own length")


def _range(offsets: Ints, start: int | None, end: int | None) -> tuple[int, int]:
    low = 0 if start is None else int(np.searchsorted(offsets, start))
    high = len(offsets) if end is None else int(np.searchsorted(offsets, end))
    return low, max(low, high)


# --- into Arrow -------------------------------------------------------------------------------


def _gather(data: bytes, starts: Ints, lengths: Ints) -> "pa.Array":
    """Binary values from where they lie; length -1 is null."""
    import pyarrow as pa

    if len(data) >= 1 << 31:
        raise CorruptionError(
            f"record batches of {len(data)} bytes decompressed are too large to read at once"
        )
    shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (-1, -1)
    if longest < 0:
        return pa.nulls(len(lengths), pa.binary())
    if 0 <= shortest == longest <= _MAX_EVEN_BYTES:
        return _gather_even(data, starts, longest)
    return _gather_views(data, starts, lengths)


def _gather_even(data: bytes, starts: Ints, length: int) -> "pa.Array":
    """Short values that all have one length, as keys often do."""
    import pyarrow as pa

    places = starts[:, None] + np.arange(length)
    octets = np.frombuffer(data, np.uint8)[places]
    offsets = np.arange(len(starts) + 1, dtype=np.int32) * length
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(octets)]
    return pa.Array.from_buffers(pa.binary(), len(starts), buffers)


def _gather_views(data: bytes, starts: Ints, lengths: Ints) -> "pa.Array":
    """Values of any length: views of 16 bytes each, which Arrow turns into a column.

    A view is the length, then either the value itself (up to 12 bytes) or its first
    four bytes, the buffer's number and the position in it. The four bytes are left zero:
    they serve comparisons, and nothing is done with the views but to copy what they show.
    """
    import pyarrow as pa

    sizes = np.maximum(lengths, 0)
    views = np.zeros((len(starts), 16), np.uint8)
    words = views.view("<i4")
    words[:, 0] = sizes
    words[:, 3] = starts
    octets = np.frombuffer(data, np.uint8)
    short = np.flatnonzero(sizes <= _INLINE_BYTES)
    if short.size:
        padded = np.frombuffer(data + bytes(_INLINE_BYTES), np.uint8)
        _write_inline(views, padded, starts, sizes, short)
    valid = None if lengths.min() >= 0 else pa.py_buffer(np.packbits(lengths >= 0, bitorder="little"))
    buffers = [valid, pa.py_buffer(views), pa.py_buffer(octets)]
    column: pa.Array = pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)
    return column.cast(pa.binary())


def _write_inline(
    views: npt.NDArray[np.uint8], octets: npt.NDArray[np.uint8], starts: Ints, sizes: Ints, rows: Ints
) -> None:
    windows = np.lib.stride_tricks.sliding_window_view(octets, _INLINE_BYTES)[starts[rows]]
    views[rows, 4:] = np.where(np.arange(_INLINE_BYTES) < sizes[rows, None], windows, 0)


def _headers(data: bytes, layout: _Layout) -> "pa.Array":
    import pyarrow as pa

    offsets = np.zeros(len(layout.ends) + 1, np.int32)
    np.cumsum(layout.header_counts, out=offsets[1:])
    keys: list[str] = []
    values: list[bytes | None] = []
    for row in np.flatnonzero(layout.header_counts).tolist():
        position = int(layout.header_starts[row])
        for _ in range(int(layout.header_counts[row])):
            key, position = _read_bytes(data, position, int(layout.ends[row]))
            value, position = _read_bytes(data, position, int(layout.ends[row]))
            keys.append((key or b"").decode(errors="replace"))
            values.append(value)
        if position != layout.ends[row]:
            raise CorruptionError(f"the headers of the record at offset {layout.offsets[row]} do not fit it")
    items = pa.StructArray.from_arrays(
        [pa.array(keys, pa.string()), pa.array(values, pa.binary())], names=["key", "value"]
    )
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    value = shift = 0
    while (byte := data[position]) > 127 and shift < 28:
        value |= (byte & 127) << shift
        shift += 7
        position += 1
    value |= byte << shift
    length, position = (value >> 1) ^ -(value & 1), position + 1
    if length < -1 or position + length > end:
        raise CorruptionError(f"a header of {length} bytes does not fit its record")
    return (None, position) if length < 0 else (data[position : position + length], position + length)
