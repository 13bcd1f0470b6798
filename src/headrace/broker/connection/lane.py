"""The short way of one small batch that comes alone, to the disk, to its reader and back to its producer.

Theory of operation. Where little is going on, the wait for a record is the sync, the
kernel's way through sockets, and the broker's own computing; and most of that is Python's,
which after every sleep finds its code gone from the processor's caches. So whatever can be
done before the request comes is done before (a reader who keeps up waits in C's terms, see
`follower`), and whatever no client waits for is done afterwards: in between is one call
(`commit_alone` in `kernels.c`), which stamps the batch, writes it, syncs, and sends both
answers. Then the log, the partition and the metrics learn what happened, before anything
else runs on the event loop.

Only what is as plain as can be goes this way, and only if at most one reader waits for it.
Everything else, and every refusal but the disk's own, is for the general path, which gets
the request as it came: nothing has been done then.

What most often comes together with a batch is its reader's next request. Then the batch is
worth a second try behind that (`is_early`); and a reader who asks only when the batch is on
disk finds it kept (`Follower.miss`).
"""

import contextlib
import os

from headrace.broker.apis.records import KnownProduce
from headrace.broker.connection.follower import WatchedPartition
from headrace.broker.connection.shared import Shared
from headrace.broker.log import SMALL_BYTES, Partition
from headrace.errors import DiskError
from headrace.kernels import Came, LaneCall, ProducedBatch
from headrace.storage import DirectAppend, FreshBatches, QueuedBatch, TopicConfig
from headrace.storage.disk import SyncFailed

__all__ = ["Lane"]

_NOBODY = -1


class Lane:
    """Of one producer's connection, while its requests are like the last. Event loop only."""

    def __init__(self, shared: Shared, last: KnownProduce, socket: int) -> None:
        self.last = last
        self.is_early = False  # what was taken last was not alone, but came before a reader who is to be back
        self._shared = shared
        self._config: TopicConfig | None = None  # which was judged last
        self._config_is_plain = False
        self._call = LaneCall(
            last.shape.head,
            producer=socket,
            others=shared.loop_load.descriptor,
            room=shared.buffers.room_at,
        )

    def take(self, frame: memoryview, address: int) -> memoryview | None:
        """Serves the request, which is at that address; what of its answer is left to be sent.

        None if the general path is to serve it.
        """
        self.is_early = False
        batch = self.last.shape.plain_batch(address, len(frame))
        if batch is None or batch.size_bytes > SMALL_BYTES or not self._is_plain():
            return None
        now_ms, config = self._shared.clock.now_ms(), self.last.topic.config
        partition = self._shared.topics.of(self.last.topic, batch.partition)
        if (
            partition is None
            or batch.size_bytes > config.max_message_bytes
            or batch.max_timestamp > now_ms + config.message_timestamp_after_max_ms
            or 0 <= batch.base_timestamp < now_ms - config.message_timestamp_before_max_ms
        ):
            return None
        return self._commit(partition, batch, frame, address, now_ms)

    def _is_plain(self) -> bool:
        """Whether of a batch for this topic nothing need be known but what its header says."""
        config = self.last.topic.config
        if config is not self._config:
            self._config, self._config_is_plain = config, self._judge(config)
        shared = self._shared
        return self._config_is_plain and shared.quotas.are_none and shared.topics.is_current(self.last.topic)

    def _judge(self, config: TopicConfig) -> bool:
        return (
            self.last.acks in (-1, 1)
            and self._shared.loop_load.descriptor >= 0  # or nobody can tell whether a batch is alone
            and config.headrace_overload == "buffer"
            and not config.stamps_append_time
            and not config.compacts
            and not self._shared.inspector.looks_into_all
        )

    def _commit(
        self, partition: Partition, batch: ProducedBatch, frame: memoryview, address: int, now_ms: int
    ) -> memoryview | None:
        reader, socket = None, _NOBODY
        away: list[WatchedPartition] = []  # these ask again, or have stopped
        for each in partition.readers:
            if isinstance(each, WatchedPartition) and not each.follower.waits:
                away.append(each)
                continue
            if reader is not None or not isinstance(each, WatchedPartition):
                return None
            reader = each
        if reader is not None:
            socket = reader.follower.clear_socket()
            if socket == _NOBODY or not reader.follower.fits(reader.number, batch.size_bytes):
                return None
        lone = partition.begin_direct_append(batch.record_count, batch.size_bytes, now_ms)
        if lone is None:
            return None
        came = self._go(batch, address, lone, partition.log.start_offset, reader, socket)
        if came is not Came.COMMITTED:
            self._not_committed(partition, came)
            self.is_early = came is Came.NOT_ALONE and bool(away)
            return None
        left = self._committed(partition, batch, frame, lone, now_ms, reader)
        if away:
            _keep_for(away, batch, frame, lone.base_offset)
        return left

    def _go(
        self,
        batch: ProducedBatch,
        address: int,
        lone: DirectAppend,
        log_start: int,
        reader: WatchedPartition | None,
        socket: int,
    ) -> Came:
        call, numbers = self._call, self._call.numbers
        numbers[call.FRAME], numbers[call.BATCH] = address, address + batch.start
        numbers[call.SIZE] = batch.size_bytes
        numbers[call.PARTITION], numbers[call.COUNT] = batch.partition, batch.record_count
        numbers[call.FILE], numbers[call.POSITION], numbers[call.BASE_OFFSET] = lone
        numbers[call.LOG_START], numbers[call.READER] = log_start, socket
        if reader is not None:
            numbers[call.FETCH], numbers[call.CHOSEN] = reader.follower.again.address, reader.number
        return call.commit()

    def _committed(
        self,
        partition: Partition,
        batch: ProducedBatch,
        frame: memoryview,
        lone: DirectAppend,
        now_ms: int,
        reader: WatchedPartition | None,
    ) -> memoryview:
        """Notes what happened in the log and with the reader; what is left of the producer's answer."""
        call, numbers = self._call, self._call.numbers
        records = frame[batch.start : batch.start + batch.size_bytes]
        next_offset = lone.base_offset + batch.record_count
        written = QueuedBatch(records, lone.base_offset, next_offset, batch.max_timestamp, now_ms, None)
        awaited = bool(numbers[call.AWAITED])
        partition.end_direct_append(written, sync_s=numbers[call.SYNCED_NS] / 1e9, awaited=awaited)
        told = numbers[call.TOLD]
        end = told + numbers[call.ACKNOWLEDGED]
        left = bytes(self._shared.buffers.room[told + numbers[call.ACKNOWLEDGED_SENT] : end])
        if reader is not None:
            about = batch.record_count, batch.size_bytes, told, numbers[call.TOLD_SENT]
            reader.follower.answered(reader.number, *about)
        return memoryview(left)

    def _not_committed(self, partition: Partition, came: Came) -> None:
        """Nothing was done, or the disk refused, as it will refuse the general path."""
        if came is Came.NOT_ALONE:
            partition.end_direct_append(None)
            return
        error = self._call.numbers[self._call.ERROR]
        kind = SyncFailed if came is Came.NOT_SYNCED else OSError
        with contextlib.suppress(DiskError):
            partition.end_direct_append(None, error=kind(error, os.strerror(error)))


def _keep_for(
    away: list[WatchedPartition], batch: ProducedBatch, frame: memoryview, base_offset: int
) -> None:
    octets = bytes(frame[batch.start : batch.start + batch.size_bytes])
    newest = FreshBatches(base_offset, base_offset + batch.record_count, octets)
    for place in away:
        place.follower.miss(place.number, newest)
