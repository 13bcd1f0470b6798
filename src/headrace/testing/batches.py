"""Batches and records for tests of the log, in one line each."""

from collections.abc import Iterator

from headrace.records import BatchHeader, Record, decode_batch, encode_batch, read_header
from headrace.storage import PartitionLog

__all__ = ["batch", "batches_in", "commit", "read_all"]


def batch(
    *values: bytes | None, key: bytes | None = None, timestamp_ms: int = 1000, codec: int = 0
) -> bytearray:
    """A producer's batch of these values, all with one key and one timestamp."""
    return encode_batch([Record(0, timestamp_ms, key, value) for value in values], codec=codec)


def commit(log: PartitionLog, *batches: bytearray, now_ms: int = 1000) -> int:
    """Appends, syncs and then does what nobody waits for, as a broker does; the high watermark."""
    for each in batches:
        log.append(each, now_ms=now_ms)
    high_watermark = log.commit()
    if log.chores_due:
        log.do_chores()
    return high_watermark


def batches_in(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch in consecutive whole ones."""
    position = 0
    while position < len(data):
        header = read_header(data, position)
        yield position, header
        position += header.size_bytes


def read_all(log: PartitionLog, offset: int | None = None, *, max_bytes: int = 4096) -> list[Record]:
    """Every record from `offset`, or the log start, up to the high watermark, as a consumer reads them."""
    offset = log.start_offset if offset is None else offset
    records: list[Record] = []
    while data := log.read(offset, max_bytes):
        for position, header in batches_in(data):
            records += [record for record in decode_batch(data, position) if record.offset >= offset]
            offset = header.next_offset
    return records
