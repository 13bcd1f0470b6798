"""Carrying a decided transaction out: markers into its partitions, its offsets into its groups.

Everything is tried again until it is on disk: what was decided must happen.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from headrace.broker.coordinators.pending_offsets import PendingOffsets
from headrace.broker.log import Partition, Topics
from headrace.clock import Clock
from headrace.errors import HeadraceError, RequestError
from headrace.groups import Partitions, TopicPartition
from headrace.groups.transactions import DecidedEnd
from headrace.storage import Marker

__all__ = ["Ending", "MarkerWriter"]

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 1.0
_COORDINATOR_EPOCH = 0

_Write: TypeAlias = Callable[[], asyncio.Future[None] | None]
"""Writes how a transaction ended to one partition or group; the future is done when it is on disk there."""
_Attempt: TypeAlias = asyncio.Future[None] | HeadraceError | None
"""What came of a write: a sync to wait for, why it could not be tried, or nothing to do."""


class Ending:
    """A decision on its way.

    `announced` is done when it is durable and its markers were first appended,
    `done` when it is complete.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.announced: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self._attempts: list[_Attempt] | None = None

    @property
    def queued(self) -> bool:
        """Whether every marker stands in its partition, so that what is appended now comes behind it."""
        return self._attempts is not None and not any(map(_has_failed, self._attempts))

    def announce(self, attempts: list[_Attempt]) -> None:
        """The decision is durable, and was written to all partitions and groups once more."""
        self._attempts = attempts
        if not self.announced.done():
            self.announced.set_result(None)

    def fail(self, error: Exception) -> None:
        for future in (self.announced, self.done):
            if not future.done():
                future.set_exception(error)
                future.exception()  # perhaps nobody waits: mark it as seen


class MarkerWriter:
    """Writes markers, and ends offsets that wait for a transaction. Event loop only."""

    def __init__(self, topics: Topics, pending: PendingOffsets, clock: Clock) -> None:
        self._topics = topics
        self._pending = pending
        self._clock = clock

    async def write(self, decided: DecidedEnd, ending: Ending) -> None:
        """Returns when every partition and group has it on disk, however often that takes to try."""
        writes: list[_Write] = [partial(self._mark, each, decided) for each in decided.partitions]
        writes += [partial(self._end_offsets, each, decided) for each in decided.groups]
        while not ending.done.done():
            attempts = [_attempt(call) for call in writes]
            ending.announce(attempts)
            syncs = [each for each in attempts if isinstance(each, asyncio.Future)]
            if syncs:
                await asyncio.wait(syncs)
            writes = [call for call, each in zip(writes, attempts, strict=True) if _has_failed(each)]
            if not writes:
                return
            await asyncio.sleep(RETRY_DELAY_S)

    def partition(self, where: TopicPartition) -> Partition | None:
        """None if it was deleted meanwhile."""
        topic = self._topics.with_id(where[0])
        return self._topics.of(topic, where[1]) if topic is not None else None

    def hurry(self, decided: DecidedEnd, *, but: Partitions = frozenset()) -> None:
        """Its producer goes on: markers are committed now, `but` those that its records take along."""
        for where in decided.partitions - but:
            partition = self.partition(where)
            if partition is not None:
                partition.commit_postponed()

    def _mark(self, where: TopicPartition, decided: DecidedEnd) -> asyncio.Future[None] | None:
        partition = self.partition(where)
        if partition is None:
            return None
        marker = Marker(decided.claim.producer_id, decided.marker_epoch, _COORDINATOR_EPOCH, decided.commit)
        now_ms = self._clock.now_ms()
        partition.append_marker(marker, now_ms=now_ms, may_wait=len(decided.partitions) > 1)
        return partition.synced()

    def _end_offsets(self, group_id: str, decided: DecidedEnd) -> asyncio.Future[None]:
        self._pending.end(group_id, decided.claim, commit=decided.commit)
        return asyncio.ensure_future(self._pending.wait_synced())


def _attempt(call: _Write) -> _Attempt:
    try:
        return call()
    except RequestError as error:
        logger.warning("a partition needs no end of a transaction: %s", error)
        return None
    except HeadraceError as error:
        logger.error("the end of a transaction is tried again: %s", error)
        return error


def _has_failed(attempt: _Attempt) -> bool:
    if isinstance(attempt, asyncio.Future):
        return attempt.done() and attempt.exception() is not None
    return attempt is not None
