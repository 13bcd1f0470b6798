"""A coordinator's internal topic: events out, events back at start."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.broker.partition import Partition
from headrace.errors import CorruptionError, DiskError, RetriableError
from headrace.groups import Code
from headrace.records import BatchHeader, Record, decode_batch, encode_batch, read_header
from headrace.storage import PartitionLog

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["Journal", "unavailable"]

logger = logging.getLogger(__name__)

_OVERRIDES = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
_READ_BYTES = 1024 * 1024

E = TypeVar("E")


def unavailable(why: str) -> RetriableError:
    """What a request gets while a coordinator's state cannot be kept safely."""
    return RetriableError(why, code=Code.COORDINATOR_NOT_AVAILABLE)


class Journal(Generic[E]):
    """Appends the events of one decision as one batch, so that all of them survive a crash or none.

    `what` the events are about is named in errors. After a failed sync `failed` stays set
    until `open` has read again what is really there.
    """

    def __init__(
        self,
        broker: "Broker",
        topic: str,
        what: str,
        *,
        encode: Callable[[E], tuple[bytes, bytes | None]],
        decode: Callable[[bytes | None, bytes | None], E],
    ) -> None:
        self.what = what
        self._broker = broker
        self._topic = topic
        self._encode = encode
        self._decode = decode
        self._partition: Partition
        self._latest: asyncio.Future[None] | None = None

    async def open(self, replay: Callable[[E, int], None], *, skip_damage: bool) -> None:
        """Makes the topic if it is missing, then replays it from its start; CorruptionError on damage."""
        if self._broker.topics.named(self._topic) is None:
            await self._broker.topics.create(self._topic, 1, _OVERRIDES)
        partition = self._broker.partition(self._topic, 0)
        assert partition is not None, "the topic was just made with one partition"
        self._partition = partition
        newest = await self._broker.in_thread(_newest, partition.log, skip_damage)
        for record in newest:
            replay(self._decode(record.key, record.value), record.timestamp_ms)
        self._latest = None

    @property
    def failed(self) -> bool:
        """Something appended did not reach the disk; memory and disk differ."""
        latest = self._latest
        return latest is not None and latest.done() and latest.exception() is not None

    @property
    def is_read_only(self) -> bool:
        """The disk failed for good; only a restart of the broker can help."""
        return self._partition.log.failed is not None

    def append(self, events: Iterable[E]) -> None:
        """Queues the events in one batch; `wait_synced` tells when they are on disk."""
        now_ms = self._broker.clock.now_ms()
        records = [Record(0, now_ms, *self._encode(event)) for event in events]
        try:
            self._partition.append(encode_batch(records), now_ms=now_ms)
        except DiskError as error:
            self._latest = asyncio.get_running_loop().create_future()
            self._latest.set_exception(error)
            raise unavailable(f"the topic of {self.what} cannot be written: {error}") from error
        self._latest = self._partition.synced()

    async def wait_synced(self) -> None:
        """Waits until everything appended so far is on disk; RetriableError if that failed."""
        latest = self._latest
        if latest is None:
            return
        if not latest.done():
            # Others wait for the same sync: one who is cancelled must not cancel it.
            await asyncio.wait([latest])
        error = latest.exception()
        if error is not None:
            raise unavailable(f"the topic of {self.what} cannot be synced: {error}") from error


def _newest(log: PartitionLog, skip_damage: bool) -> list[Record]:
    """The last record of each key, in the order of the log, without tombstones; on a worker thread.

    An event carries the whole value of its key, so the ones before it need not even be decoded.
    """
    newest: dict[bytes | None, Record] = {}
    offset = log.start_offset
    while offset < log.high_watermark:
        offset, records = _read(log, offset, skip_damage)
        for record in records:
            newest.pop(record.key, None)
            newest[record.key] = record
    return [record for record in newest.values() if record.value is not None]


def _read(log: PartitionLog, offset: int, skip_damage: bool) -> tuple[int, list[Record]]:
    """The records from an offset on, and where to go on."""
    try:
        data = log.read(offset, _READ_BYTES)
    except CorruptionError:
        after = [d.next_offset for d in log.damage if d.first_offset <= offset < d.next_offset]
        if not skip_damage or not after:
            raise
        logger.error("records %d to %d in %s are lost", offset, after[0] - 1, log.path)
        return after[0], []
    found: list[Record] = []
    following = log.high_watermark  # compaction may leave nothing up to the end
    for position, header in _batches(data):
        following = header.next_offset
        found += decode_batch(data, position)
    return following, found


def _batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch."""
    position = 0
    while position < len(data):
        header = read_header(data, position)
        yield position, header
        position += header.size_bytes
