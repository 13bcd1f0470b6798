"""A partition as the broker sees it: its log, who waits for its sync, who waits for its records.

Group commit happens here. At most one commit of a partition runs at a time, as the
committer sees fit; everything appended while it runs is taken by the next one. The end
of a transaction is not waited for by its producer, who is told when the decision is on
disk, so it never holds the event loop up; and where there are many to commit, they are left
for a moment unless a reader waits: records of the next transaction then share the sync.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from headrace.broker.log.committer import Committer
from headrace.errors import DiskError
from headrace.storage import Appended, DirectAppend, FreshBatches, Marker, PartitionLog, QueuedBatch

__all__ = ["Partition"]

logger = logging.getLogger(__name__)

Synced = Callable[[BaseException | None], None]

MARKER_DELAY_S = 0.005


class Partition:
    """Appends, group commits and wake-ups of one partition. Event loop only."""

    def __init__(self, log: PartitionLog, committer: Committer) -> None:
        self.log = log
        self._committer = committer
        self._committing = False
        self._idle_waiters: list[asyncio.Future[None]] = []
        self._unsynced: deque[tuple[int, int, Synced]] = deque()
        self._readers: set[Callable[[], None]] = set()
        self._postponed: asyncio.TimerHandle | None = None  # the commit of markers
        self.newest: FreshBatches | None = None  # while readers are told of it
        self.produced_records = self.produced_bytes = 0
        self.fetched_records = self.fetched_bytes = 0

    def append(self, batch: bytearray | memoryview, *, now_ms: int, alone: bool = False) -> Appended:
        """Queues a checked batch and starts a commit if none runs; if it is `alone`, that may be over then.

        A batch that its producer sent before is not queued again; `synced` then
        tells when the first one is on disk, as it does for a new one.
        """
        appended = self.log.append(batch, now_ms=now_ms)
        if not appended.duplicate:
            self.produced_records += appended.last_offset - appended.base_offset + 1
            self.produced_bytes += len(batch)
            if not self._committing:
                self._commit(alone=alone)
        return appended

    def begin_direct_append(self, count: int, size: int, now_ms: int) -> DirectAppend | None:
        """Where a plain batch goes that its caller commits here and now; None if it must be appended.

        `end_direct_append` must follow, before anything else.
        """
        if self._committing or self._postponed is not None or not self._committer.may_run_here:
            return None
        return self.log.begin_direct_append(count, size, now_ms)

    def end_direct_append(
        self,
        batch: QueuedBatch | None,
        *,
        sync_s: float = 0.0,
        awaited: bool = False,
        error: OSError | None = None,
    ) -> None:
        """It was committed, or it is None; DiskError if the disk refused. Readers have been notified.

        `awaited`: meanwhile somebody came to wait for the event loop.
        """
        self.log.end_direct_append(batch, sync_s=sync_s, error=error)
        if batch is not None:
            if awaited:
                self._committer.was_awaited_here(sync_s)
            self.produced_records += batch.next_offset - batch.base_offset
            self.produced_bytes += len(batch.batch)
            if self.log.chores_due:
                self._committing = True
                self._committer.run_on_thread(self.log.do_chores, self._commit_next)

    @property
    def readers(self) -> AbstractSet[Callable[[], None]]:
        """Who is told when there is more."""
        return self._readers

    def append_marker(self, marker: Marker, *, now_ms: int, may_wait: bool = False) -> int:
        """Queues the end of a producer's transaction and starts a commit if none runs; its offset.

        If it `may_wait` and nobody waits for records, it is committed with what is
        appended next, or after a moment.
        """
        offset = self.log.append_marker(marker, now_ms=now_ms)
        if self._committing or self._postponed is not None:
            return offset
        if may_wait and not self._readers:
            later = asyncio.get_running_loop().call_later
            self._postponed = later(MARKER_DELAY_S, lambda: self._commit(urgent=False))
        else:
            self._commit(urgent=False)
        return offset

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records end."""
        return self.log.last_stable_offset

    def readable_end(self, *, committed: bool) -> int:
        """The offset before which a reader of this kind finds records."""
        return self.log.last_stable_offset if committed else self.log.high_watermark

    def when_synced(self, call: Synced) -> None:
        """Calls with None once everything appended so far is on disk, with a DiskError if that failed.

        At once if either is so already; else after the readers, who are woken first.
        """
        end_offset, generation = self.log.end_offset, self.log.generation
        if end_offset <= self.log.high_watermark:
            call(None)
        elif not self._committing and (dropped := self._dropped(end_offset, generation)) is not None:
            call(dropped)
        else:
            self._unsynced.append((end_offset, generation, call))

    def synced(self) -> asyncio.Future[None]:
        """Done once everything appended so far is on disk; fails with DiskError if that failed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
                done.exception()  # not everybody waits for it: mark it as seen

        self.when_synced(settle)
        return done

    def on_records(self, wake: Callable[[], None]) -> None:
        """Calls `wake` whenever the high watermark, and perhaps the last stable offset, moves."""
        self._readers.add(wake)
        self.commit_postponed()

    def commit_postponed(self) -> None:
        """Somebody waits after all: commits at once what was left for a moment."""
        if self._postponed is not None:
            self._commit(urgent=False)

    def forget(self, wake: Callable[[], None]) -> None:
        self._readers.discard(wake)

    async def wait_idle(self) -> None:
        """Waits until no commit runs, and none is postponed."""
        self.commit_postponed()
        while self._committing:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            await waiter

    def _commit(self, *, urgent: bool = True, alone: bool = False) -> None:
        if self._postponed is not None:
            self._postponed.cancel()
            self._postponed = None
        if not self.log.commit_waits:
            self._acknowledge(self.log.commit())
            return
        self._committing = True
        self._committer.run(self.log, self._committed, urgent=urgent, alone=alone)

    def _committed(self, high_watermark: int, error: BaseException | None) -> None:
        if error is not None:
            self._fail(error)
        else:
            self._acknowledge(high_watermark)
            if self.log.chores_due:
                # Who waits has been notified; what is appended meanwhile waits for it.
                self._committer.run_on_thread(self.log.do_chores, self._commit_next)
                return
        self._commit_next()

    def _commit_next(self) -> None:
        self._committing = False
        if self.log.pending_bytes and self.log.failed is None:
            self._commit()
        elif self._idle_waiters:
            self._tell_idle()

    def _tell_idle(self) -> None:
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _acknowledge(self, high_watermark: int) -> None:
        """Readers come first: a producer's answer, once made, is seldom waited for as much as a record."""
        self.newest = self.log.take_fresh_batches(wanted=bool(self._readers))
        for wake in tuple(self._readers):
            wake()
        self.newest = None
        unsynced = self._unsynced
        if unsynced and unsynced[0][0] <= high_watermark:
            asyncio.get_running_loop().call_soon(self._answer, high_watermark)

    def _answer(self, high_watermark: int) -> None:
        unsynced = self._unsynced
        try:
            while unsynced and unsynced[0][0] <= high_watermark:
                unsynced.popleft()[2](None)
        finally:  # one that failed does not leave the others waiting
            if unsynced and unsynced[0][0] <= high_watermark:
                asyncio.get_running_loop().call_soon(self._answer, high_watermark)

    def _fail(self, error: BaseException) -> None:
        """Fails the appends that were dropped; some may have been synced, or made since then."""
        logger.error("%s", error, exc_info=None if isinstance(error, DiskError) else error)
        waiting, self._unsynced = self._unsynced, deque()
        for end_offset, generation, call in waiting:
            refusal = self._refusal(error, end_offset, generation)
            if refusal is not None or end_offset <= self.log.high_watermark:
                call(refusal)
            else:
                self._unsynced.append((end_offset, generation, call))

    def _refusal(self, error: BaseException, end_offset: int, generation: int) -> BaseException | None:
        """Why an append failed; None if it did not."""
        return self._dropped(end_offset, generation) if isinstance(error, DiskError) else error

    def _dropped(self, end_offset: int, generation: int) -> DiskError | None:
        """With which error what ended at `end_offset` was dropped; None if it was not."""
        try:
            self.log.acknowledged(end_offset - 1, generation)
        except DiskError as error:
            return error
        return None
