"""A coordinator's state as a log: decisions out to an internal topic, and back at start.

Every decision is made on the event loop: it counts at once, its events are appended
as one batch, and it is answered when that batch is synced. Later decisions may build
on it meanwhile, because their events come later in the same log: no answer rests on
what is not on disk. If a sync fails, memory and disk differ: from then on every request
is answered COORDINATOR_NOT_AVAILABLE until the topic has been replayed. After a failure
that makes it read-only it stays so until the broker is restarted.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Generic, TypeVar

from headrace.broker.log import Partition, Topics, WorkerThreads
from headrace.clock import Clock
from headrace.errors import CorruptionError, DiskError, RetriableError
from headrace.groups import Code
from headrace.records import BatchHeader, Record, decode_batch, encode_batch, read_header
from headrace.storage import PartitionLog

__all__ = ["Journal", "unavailable"]

logger = logging.getLogger(__name__)

RELOAD_DELAY_S = 1.0
_OVERRIDES = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
_READ_BYTES = 1024 * 1024

E = TypeVar("E")
T = TypeVar("T")


def unavailable(why: str) -> RetriableError:
    """What a request gets while a coordinator's state cannot be kept safely."""
    return RetriableError(why, code=Code.COORDINATOR_NOT_AVAILABLE)


class Journal(Generic[E]):
    """Appends the events of one decision as one batch, so that all of them survive a crash or none.

    `what` the events are about is named in errors. Once something appended did not reach
    the disk, `on_failure` is called with what to tell requests that wait, and requests are
    refused until the topic was replayed (`reload_if_failed`). Event loop only.
    """

    def __init__(
        self,
        topics: Topics,
        threads: WorkerThreads,
        clock: Clock,
        *,
        topic: str,
        what: str,
        encode: Callable[[E], tuple[bytes, bytes | None]],
        decode: Callable[[bytes | None, bytes | None], E],
        on_failure: Callable[[RetriableError], None],
    ) -> None:
        self._topics = topics
        self._threads = threads
        self._clock = clock
        self._topic = topic
        self._what = what
        self._encode = encode
        self._decode = decode
        self._on_failure = on_failure
        self._partition: Partition
        self._latest: asyncio.Future[None] | None = None
        self._is_unread = False  # the disk did not return the topic: it is tried again
        self.is_available = False

    # --- start --------------------------------------------------------------------------------

    async def open(self, replay: Callable[[E, int], None], *, skip_damage: bool, setting: str) -> bool:
        """Whether the topic, which is made if it is missing, could be replayed; if not, why is logged.

        Damage stays until `setting` accepts the loss. What the disk did not read may be as
        good as ever, and is read again in a moment. Nothing is served until `serve`.
        """
        again = self._is_unread
        try:
            await self._replay(replay, skip_damage=skip_damage)
            self._is_unread = False
        except CorruptionError as error:
            logger.error("%s are unavailable: %s; or set %s and accept the loss", self._what, error, setting)
        except DiskError as error:
            if not again:  # not each second
                logger.error("%s are unavailable until their topic can be read: %s", self._what, error)
            self._is_unread = True
            self._on_failure(unavailable(f"the topic of {self._what} cannot be read"))
        else:
            if again:
                logger.info("the topic of %s can be read again", self._what)
            return True
        return False

    async def _replay(self, replay: Callable[[E, int], None], *, skip_damage: bool) -> None:
        if self._topics.named(self._topic) is None:
            await self._topics.create(self._topic, 1, _OVERRIDES)
        partition = self._topics.partition(self._topic, 0)
        assert partition is not None, "the topic was just made with one partition"
        self._partition = partition
        for record in await self._threads.run(_newest, partition.log, skip_damage):
            replay(self._decode(record.key, record.value), record.timestamp_ms)
        self._latest = None

    def serve(self) -> None:
        """What was replayed is in memory: requests are served from now on."""
        self.is_available = True

    async def reload_if_failed(self, load: Callable[[], Awaitable[None]]) -> None:
        """After a failed write or read, has everything replayed by `load`.

        Not after a write that failed for good; only a restart of the broker can help then.
        """
        if not self._has_failed and not self._is_unread:
            return
        if self.is_available:
            self._stop_serving()
        if self._is_unread or self._partition.log.failed is None:
            await asyncio.sleep(RELOAD_DELAY_S)
            if not self._is_unread:
                logger.warning("reading the topic of %s again after a failed write", self._what)
            await load()

    # --- decisions ----------------------------------------------------------------------------

    def check_available(self) -> None:
        """Raises RetriableError while what is in memory is not to be trusted."""
        if self.is_available and self._has_failed:
            self._stop_serving()
        if not self.is_available:
            raise unavailable(f"{self._what} are unavailable: the broker's log names the cause")

    @property
    def is_trusted(self) -> bool:
        """Whether memory and disk agree, as far as is known."""
        return self.is_available and not self._has_failed

    def append(self, events: Iterable[E]) -> None:
        """Queues events that belong together, in one batch; `settled` waits until they are on disk."""
        now_ms = self._clock.now_ms()
        records = [Record(0, now_ms, *self._encode(event)) for event in events]
        if not records:
            return
        try:
            self._partition.append(encode_batch(records), now_ms=now_ms)
        except DiskError as error:
            self._latest = asyncio.get_running_loop().create_future()
            self._latest.set_exception(error)
            self._stop_serving()
            raise unavailable(f"the topic of {self._what} cannot be written: {error}") from error
        self._latest = self._partition.synced()

    async def settled(self, reply: T) -> T:
        """The reply, once nothing that it may rest on can be lost any more; RetriableError if it was."""
        latest = self._latest
        if latest is None:
            return reply
        if not latest.done():
            # Others wait for the same sync: one who is cancelled must not cancel it.
            await asyncio.wait([latest])
        error = latest.exception()
        if error is not None:
            if self.is_available:
                self._stop_serving()
            raise unavailable(f"the topic of {self._what} cannot be synced: {error}") from error
        return reply

    @property
    def _has_failed(self) -> bool:
        """Something appended did not reach the disk; memory and disk differ."""
        latest = self._latest
        return latest is not None and latest.done() and latest.exception() is not None

    def _stop_serving(self) -> None:
        """Memory is ahead of the disk: no answer rests on it any more."""
        self.is_available = False
        self._on_failure(unavailable(f"the topic of {self._what} could not be written"))


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
