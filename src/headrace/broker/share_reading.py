"""Record batches as queues read them: what is in them, and what of them is delivered."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.partition import Partition
from headrace.groups.share import Acquired, Span
from headrace.records import BatchHeader, read_header
from headrace.storage import Extent
from headrace.storage.aborted import AbortedTransaction

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["Batch", "Chunk", "read_chunk"]

_READ_BYTES = 256 * 1024


class Batch(NamedTuple):
    """One batch in a chunk; `is_delivered` is false for markers and aborted transactions."""

    span: Span
    position: int
    size_bytes: int
    is_delivered: bool


class Chunk(NamedTuple):
    """Whole batches as they stand in the log."""

    data: bytes
    batches: Sequence[Batch]

    def of(self, acquired: Iterable[Acquired]) -> bytes:
        """The bytes of the batches in which something was acquired."""
        wanted = list(acquired)
        parts = []
        for batch in self.batches:
            while wanted and wanted[0].last < batch.span.first:
                wanted.pop(0)
            if wanted and wanted[0].first <= batch.span.last:
                parts.append(self.data[batch.position : batch.position + batch.size_bytes])
        return b"".join(parts)


async def read_chunk(
    broker: "Broker", partition: Partition, offset: int, max_bytes: int, *, committed: bool
) -> Chunk:
    """Verified whole batches from the one that holds `offset` on, at least one if there is any.

    Raises RequestError outside the log, CorruptionError and DiskError where it cannot be read.
    """
    log = partition.log
    try:
        extent = log.locate(offset, max_bytes, wait=False, committed=committed)
    except BlockingIOError:
        extent = await broker.in_thread(log.locate, offset, max_bytes, committed=committed)
    if extent is None:
        return Chunk(b"", ())
    with extent:
        data = await _bytes_of(broker, extent)
    headers = list(_headers(data))
    if not headers:
        return Chunk(b"", ())
    last = headers[-1][1].last_offset
    aborted = log.aborted(offset, last + 1) if committed else []
    return Chunk(data, _batches(headers, aborted))


async def _bytes_of(broker: "Broker", extent: Extent) -> bytes:
    """What is in the page cache is read here; the disk is waited for on a thread."""
    chunks: list[bytes | bytearray] = []
    while True:
        chunk = extent.read_chunk(_READ_BYTES, wait=False)
        if chunk is None:
            chunks.append(await broker.in_thread(_rest_of, extent))
            break
        if not chunk:
            break
        chunks.append(chunk)
    return b"".join(chunks)


def _rest_of(extent: Extent) -> bytes:
    chunks = []
    while chunk := extent.read_chunk(_READ_BYTES):
        chunks.append(chunk)
    return b"".join(chunks)


def _headers(data: bytes) -> Iterable[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; the last one may be cut off."""
    position = 0
    while position + 61 <= len(data):
        header = read_header(data, position)
        if position + header.size_bytes > len(data):
            return
        yield position, header
        position += header.size_bytes


def _batches(
    headers: Sequence[tuple[int, BatchHeader]], aborted: Sequence[AbortedTransaction]
) -> list[Batch]:
    found = []
    for position, header in headers:
        void = header.is_control or (
            header.is_transactional
            and any(
                each.producer_id == header.producer_id
                and each.first_offset <= header.base_offset <= each.last_offset
                for each in aborted
            )
        )
        span = Span(header.base_offset, header.last_offset)
        found.append(Batch(span, position, header.size_bytes, not void))
    return found
