"""A partition as the broker sees it: its log, who waits for its sync, who waits for its records.

Group commit happens here. At most one commit of a partition runs at a time, on
a worker thread; everything appended while it runs is taken by the next one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor

from headrace.errors import DiskError
from headrace.storage import Appended, Marker, PartitionLog

__all__ = ["Partition"]

logger = logging.getLogger(__name__)


class Partition:
    """Appends, group commits and wake-ups of one partition. Event loop only."""

    def __init__(self, log: PartitionLog, executor: Executor) -> None:
        self.log = log
        self._executor = executor
        self._committing: asyncio.Future[int] | None = None
        self._unsynced: deque[tuple[int, int, asyncio.Future[None]]] = deque()
        self._readers: set[Callable[[], None]] = set()
        self.produced_records = self.produced_bytes = 0
        self.fetched_records = self.fetched_bytes = 0

    def append(self, batch: bytearray | memoryview, *, now_ms: int) -> Appended:
        """Queues a checked batch and starts a commit if none runs.

        A batch that its producer sent before is not queued again; `synced` then
        tells when the first one is on disk, as it does for a new one.
        """
        appended = self.log.append(batch, now_ms=now_ms)
        if not appended.duplicate:
            self.produced_records += appended.last_offset - appended.base_offset + 1
            self.produced_bytes += len(batch)
            if self._committing is None:
                self._commit()
        return appended

    def append_marker(self, marker: Marker, *, now_ms: int) -> int:
        """Queues the end of a producer's transaction and starts a commit if none runs; its offset."""
        offset = self.log.append_marker(marker, now_ms=now_ms)
        if self._committing is None:
            self._commit()
        return offset

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records end."""
        return self.log.last_stable_offset

    def readable_end(self, *, committed: bool) -> int:
        """The offset before which a reader of this kind finds records."""
        return self.log.last_stable_offset if committed else self.log.high_watermark

    def synced(self) -> asyncio.Future[None]:
        """Done once everything appended so far is on disk; fails with DiskError if that failed."""
        done = asyncio.get_running_loop().create_future()
        if self.log.end_offset <= self.log.high_watermark:
            done.set_result(None)
        else:
            self._unsynced.append((self.log.end_offset, self.log.generation, done))
        return done

    def on_records(self, wake: Callable[[], None]) -> None:
        """Calls `wake` whenever the high watermark, and perhaps the last stable offset, moves."""
        self._readers.add(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        self._readers.discard(wake)

    async def wait_idle(self) -> None:
        """Waits until no commit runs."""
        while self._committing is not None:
            await asyncio.wait([self._committing])

    def _commit(self) -> None:
        if not self.log.commit_waits:
            self._acknowledge(self.log.commit())
            return
        loop = asyncio.get_running_loop()
        self._committing = loop.run_in_executor(self._executor, self.log.commit)
        self._committing.add_done_callback(self._committed)

    def _committed(self, commit: asyncio.Future[int]) -> None:
        self._committing = None
        if commit.cancelled():
            return
        error = commit.exception()
        if error is not None:
            self._fail(error)
        else:
            self._acknowledge(commit.result())
        if self.log.pending_bytes and self.log.failed is None:
            self._commit()

    def _acknowledge(self, high_watermark: int) -> None:
        for wake in tuple(self._readers):
            wake()
        while self._unsynced and self._unsynced[0][0] <= high_watermark:
            _, _, done = self._unsynced.popleft()
            if not done.done():
                done.set_result(None)

    def _fail(self, error: BaseException) -> None:
        """Fails the appends that were dropped; some may have been synced, or made since then."""
        logger.error("%s", error, exc_info=None if isinstance(error, DiskError) else error)
        waiting, self._unsynced = self._unsynced, deque()
        for end_offset, generation, done in waiting:
            refusal = self._refusal(error, end_offset, generation)
            if done.done():
                continue
            if refusal is not None:
                done.set_exception(refusal)
                done.exception()  # an acks=0 producer waits for nothing: mark it as seen
            elif end_offset <= self.log.high_watermark:
                done.set_result(None)
            else:
                self._unsynced.append((end_offset, generation, done))

    def _refusal(self, error: BaseException, end_offset: int, generation: int) -> BaseException | None:
        """Why an append failed; None if it did not."""
        if not isinstance(error, DiskError):
            return error
        try:
            self.log.acknowledged(end_offset - 1, generation)
        except DiskError as refusal:
            return refusal
        return None
