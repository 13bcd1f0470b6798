"""Retention and compaction, partition by partition, away from the event loop."""

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter

from headrace.broker.log.threads import WorkerThreads
from headrace.broker.log.topics import Topics
from headrace.broker.metrics import Metrics
from headrace.broker.settings import BrokerSettings
from headrace.clock import Clock
from headrace.errors import DiskError
from headrace.storage import CompactionLimits, PartitionLog

__all__ = ["Upkeep"]

logger = logging.getLogger(__name__)


class Upkeep:
    """Applies what topics are configured for, every `upkeep_interval_ms`. Event loop only.

    `on_deleted` is called when retention has deleted segments. A partition that fails is
    logged and counted, and holds up no other. The thread is for this alone, so that no reader
    waits for it.
    """

    def __init__(
        self,
        topics: Topics,
        thread: WorkerThreads,
        settings: BrokerSettings,
        clock: Clock,
        metrics: Metrics,
        *,
        on_deleted: Callable[[], None],
    ) -> None:
        self._topics = topics
        self._thread = thread
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._on_deleted = on_deleted

    async def run(self) -> None:
        """Round after round, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.upkeep_interval_ms / 1000)
            await self.run_once()

    async def run_once(self) -> None:
        """One round over all partitions."""
        for topic in self._topics.all():
            for log in tuple(topic.partitions):
                try:
                    work = await self._thread.run(_keep_up, log, self._clock.now_ms(), self._settings)
                except Exception as error:
                    self._metrics.upkeep_failures.add(1, topic.name)
                    logger.error(
                        "retention or compaction of a partition of %s failed: %s",
                        topic.name,
                        error,
                        exc_info=None if isinstance(error, DiskError) else error,
                    )
                    continue
                self._metrics.count_upkeep(topic.name, *work)
                if work[0]:
                    self._on_deleted()


def _keep_up(log: PartitionLog, now_ms: int, settings: BrokerSettings) -> tuple[int, int, float]:
    """Retention, then compaction: segments deleted, bytes saved, seconds. Worker thread."""
    began = perf_counter()
    log.read_unreadable_again()
    log.forget_idle_producers(now_ms, settings.producer_id_expiration_ms)
    deleted = len(log.apply_retention(now_ms))
    limits = CompactionLimits(
        map_bytes=settings.compaction_map_bytes, read_bytes=settings.compaction_read_bytes
    )
    return deleted, log.compact(now_ms, limits), perf_counter() - began
