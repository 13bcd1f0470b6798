"""Single records: for finding one by time, for the internal topics and for compaction.

Streams of records go through `decode_columns` instead.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from headrace.errors import CorruptionError
from headrace.records.aiokafka_native import codecs, record_reader
from headrace.records.batch import Readable, check_batch, seal
from headrace.records.batch_header import (
    APPEND_TIME_BIT,
    CODEC_BITS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from headrace.records.codec import DEFAULT_MAX_BYTES, Codec, decompress

__all__ = ["Record", "decode_batch", "encode_batch", "iterate_batch", "rewrite_batch"]

_FEW = 8192  # records of a batch that may be held at once


class Record(NamedTuple):
    """One record as its batch tells it; `offset` is absolute once the batch is stamped."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def decode_batch(buffer: Readable, position: int = 0, *, max_bytes: int = DEFAULT_MAX_BYTES) -> list[Record]:
    """The records of the batch at `position`, checked first; CorruptionError if anything is wrong."""
    return list(iterate_batch(buffer, position, max_bytes=max_bytes))


def iterate_batch(
    buffer: Readable, position: int = 0, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> Iterator[Record]:
    """The same, one record after the other: of a batch of millions only one is held at a time."""
    header = check_batch(buffer, position, produced=False)
    batch = memoryview(buffer)[position : position + header.size_bytes]
    return read_records(plain_batch(header, batch, max_bytes), header)


def read_records(plain: bytes, header: BatchHeader) -> Iterator[Record]:
    """The records of an uncompressed batch."""
    for r in _read(plain, header):
        yield Record(r.offset, r.timestamp, r.key, r.value, r.headers)


def read_rows(plain: bytes, header: BatchHeader) -> Iterator[tuple[int, bytes | None, bool]]:
    """Offset, key and whether the value is null, of each record of an uncompressed batch."""
    if header.record_count > _FEW:
        return ((r.offset, r.key, r.value is None) for r in _read(plain, header))
    with _reading(header) as reader:
        return iter([(r.offset, r.key, r.value is None) for r in reader(plain)])


def _read(plain: bytes, header: BatchHeader) -> Iterator[Any]:
    with _reading(header) as reader:
        yield from reader(plain)


@contextlib.contextmanager
def _reading(header: BatchHeader) -> Iterator[Any]:
    """aiokafka's reader; what it raises on records that do not fit becomes CorruptionError."""
    reader, unreadable = record_reader()
    try:
        yield reader
    except unreadable as error:
        raise CorruptionError(f"the records of the batch at offset {header.base_offset}: {error}") from error


def plain_batch(header: BatchHeader, batch: Readable, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """The same batch without compression (its CRC is then stale, and already checked)."""
    if header.codec == Codec.NONE:
        return bytes(batch)
    plain = decompress(header.codec, memoryview(batch)[HEADER_BYTES:], max_bytes=max_bytes)
    attributes = header.attributes & ~CODEC_BITS
    return HEADER.pack(*header._replace(attributes=attributes)) + plain


def encode_batch(
    records: Iterable[Record],
    *,
    codec: int = Codec.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """A batch with a base offset of 0, as a producer sends it; the records' own offsets are ignored."""
    attributes = codec | TRANSACTIONAL_BIT * transactional | CONTROL_BIT * control
    records = list(records)
    base_timestamp = records[0].timestamp_ms if records else 0
    numbered = [record._replace(offset=delta) for delta, record in enumerate(records)]
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max((record.timestamp_ms for record in records), default=-1),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return _assemble(header, numbered)


def rewrite_batch(
    header: BatchHeader, records: Sequence[Record], *, delete_horizon_ms: int | None = None
) -> bytearray:
    """The batch of `header` with only these of its records left.

    Offsets, codec, producer and the range of offsets stay, so the place of the
    batch in the log does not change; one without records is not compressed. With
    `delete_horizon_ms` the batch carries, as Kafka's does, the time from which its
    tombstones may be dropped.
    """
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if not records:
        attributes &= ~CODEC_BITS
    if delete_horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, delete_horizon_ms
    largest = max((record.timestamp_ms for record in records), default=-1)
    kept_time = header.max_timestamp if attributes & APPEND_TIME_BIT else largest
    return _assemble(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=kept_time,
            record_count=len(records),
        ),
        records,
    )


def _assemble(header: BatchHeader, records: Sequence[Record]) -> bytearray:
    payload = bytearray()
    for record in records:
        write_record(payload, record, header)
    return assemble(header, bytes(payload))


def assemble(header: BatchHeader, payload: bytes | bytearray) -> bytearray:
    """A batch of records that are encoded already: compressed as the header says, with length and CRC."""
    packed = _compress(header.codec, payload)
    batch = bytearray(HEADER.pack(*header._replace(batch_length=HEADER_BYTES - 12 + len(packed))))
    batch += packed
    seal(batch, 0)
    return batch


def _compress(codec: int, plain: bytes | bytearray) -> bytes | bytearray | memoryview:
    if codec == Codec.NONE:
        return plain
    native = codecs()
    encode = {
        Codec.GZIP: native.gzip_encode,
        Codec.SNAPPY: native.snappy_encode,
        Codec.LZ4: native.lz4_encode,
        Codec.ZSTD: native.cramjam.zstd.compress,  # without a copy
    }[Codec(codec)]
    return memoryview(encode(plain))


def write_record(out: bytearray, record: Record, header: BatchHeader) -> None:
    """Encodes one record, its offset and time relative to those of the header."""
    out += encode_record(record, header)


def encode_record(record: Record, header: BatchHeader) -> bytes:
    """The same by itself; its value, which may be large, is copied once."""
    length, head, tail = bytearray(), bytearray(1), bytearray()  # attributes: none are defined
    _write_varint(head, record.timestamp_ms - header.base_timestamp)
    _write_varint(head, record.offset - header.base_offset)
    _write_bytes(head, record.key)
    value = b"" if record.value is None else record.value
    _write_varint(head, -1 if record.value is None else len(value))
    _write_varint(tail, len(record.headers))
    for name, each in record.headers:
        _write_bytes(tail, name.encode())
        _write_bytes(tail, each)
    _write_varint(length, len(head) + len(value) + len(tail))
    return b"".join((length, head, value, tail))


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # zigzag of -1
        return
    _write_varint(out, len(value))
    out += value


def _write_varint(out: bytearray, value: int) -> None:
    """Zigzag, then seven bits a byte, lowest first."""
    if 0 <= value < 64:  # most of them: lengths of headers and of their names
        out.append(value << 1)
        return
    number = (value << 1) ^ (value >> 63)
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
