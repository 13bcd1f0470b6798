"""Record batches as queues read them: what is in them, and what of them is delivered."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.broker.log import Partition, WorkerThreads
from headrace.groups.share import Acquired, Span
from headrace.records import HEADER_BYTES, BatchHeader, read_header
from headrace.storage import Extent
from headrace.storage.producers import AbortedTransaction

__all__ = ["Enough", "QueueBatch", "QueueChunk", "read_chunk"]

_READ_BYTES = 256 * 1024


class QueueBatch(NamedTuple):
    """One batch in a chunk; `is_delivered` is false for markers and aborted transactions."""

    span: Span
    position: int
    size_bytes: int
    is_delivered: bool


class QueueChunk(NamedTuple):
    """Whole batches as they stand in the log."""

    data: bytes | bytearray
    batches: Sequence[QueueBatch]

    def of(self, acquired: Iterable[Acquired]) -> bytes:
        """The bytes of the batches in which something was acquired."""
        wanted, data = list(acquired), memoryview(self.data)
        parts = []
        for batch in self.batches:
            while wanted and wanted[0].last < batch.span.first:
                wanted.pop(0)
            if wanted and wanted[0].first <= batch.span.last:
                parts.append(data[batch.position : batch.position + batch.size_bytes])
        return b"".join(parts)


class Enough:
    """Tells when the batches read so far hold as many records as are wanted, of those `available`."""

    def __init__(self, available: Iterable[Span], records: int) -> None:
        self._spans = deque(available)
        self._left = records

    def after(self, header: BatchHeader) -> bool:
        """Whether the batches up to this one are enough; they come in the order of the log."""
        found = 0
        while self._spans and self._spans[0].first <= header.last_offset:
            span = self._spans[0]
            found += max(min(span.last, header.last_offset) - max(span.first, header.base_offset) + 1, 0)
            if span.last > header.last_offset:
                break
            self._spans.popleft()
        if not header.is_control:
            self._left -= min(found, header.record_count)  # offsets may be without a record
        return self._left <= 0


async def read_chunk(
    threads: WorkerThreads,
    partition: Partition,
    offset: int,
    max_bytes: int,
    enough: Enough,
    *,
    committed: bool,
) -> QueueChunk:
    """Verified whole batches from the one that holds `offset` on, at least one if there is any.

    No more than are `enough`, and all within `max_bytes` but the first.
    Raises RequestError outside the log, CorruptionError and DiskError where it cannot be read.
    """
    log = partition.log
    try:
        extent = log.locate(offset, max_bytes, wait=False, committed=committed)
    except BlockingIOError:
        extent = await threads.run(log.locate, offset, max_bytes, committed=committed)
    if extent is None:
        return QueueChunk(b"", ())
    with extent:
        data, headers = await _read(threads, extent, enough)
    if not headers:
        return QueueChunk(b"", ())
    last = headers[-1][1].last_offset
    aborted = log.aborted(offset, last + 1) if committed else []
    return QueueChunk(data, _batches(headers, aborted))


async def _read(
    threads: WorkerThreads, extent: Extent, enough: Enough
) -> tuple[bytearray, list[tuple[int, BatchHeader]]]:
    """What is in the page cache is read here; the disk is waited for on a thread."""
    data, position = bytearray(), 0
    headers: list[tuple[int, BatchHeader]] = []
    while True:
        chunk = extent.read_chunk(_READ_BYTES, wait=False)
        if chunk is None:
            chunk = await threads.run(extent.read_chunk, _READ_BYTES)
        if not chunk:
            return data, headers
        data += chunk
        for header in _headers(data, position):
            headers.append((position, header))
            position += header.size_bytes
            if enough.after(header):
                return data, headers


def _headers(data: bytearray, position: int) -> Iterator[BatchHeader]:
    """Those of the whole batches from a position on; the last one may be cut off."""
    while position + HEADER_BYTES <= len(data):
        header = read_header(data, position)
        position += header.size_bytes
        if position > len(data):
            return
        yield header


def _batches(
    headers: Sequence[tuple[int, BatchHeader]], aborted: Sequence[AbortedTransaction]
) -> list[QueueBatch]:
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
        found.append(QueueBatch(span, position, header.size_bytes, not void))
    return found
