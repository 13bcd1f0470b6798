"""What a broker consists of besides its connections, opened in order and closed in reverse.

Nothing takes all of this: a handler, a coordinator or a watch takes the services it uses.
`Services` only hands them out where families of handlers are put together (`apis`) and where
the whole broker is looked at (`watch`).
"""

import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from headrace.broker.access import Authority
from headrace.broker.coordinators import (
    GroupCoordinator,
    GroupStore,
    PendingOffsets,
    TransactionCoordinator,
    TransactionStore,
)
from headrace.broker.coordinators.queues import DeadLetters, QueueCoordinator, QueueStore
from headrace.broker.events import Events
from headrace.broker.limits import FallenGroups, GroupPosition, LagWatch, Overload, Quotas, RequestMemory
from headrace.broker.log import Committer, Inspector, Topics, Upkeep, WorkerThreads
from headrace.broker.metrics import Metrics
from headrace.broker.settings import BrokerSettings
from headrace.clock import Clock
from headrace.errors import ConfigError
from headrace.groups import GroupSettings
from headrace.storage import DataDirectory, Disk

__all__ = ["Services", "open_services"]

Work = Callable[[], Coroutine[Any, Any, None]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts of one running broker; `background` is the work that goes on without requests."""

    settings: BrokerSettings
    clock: Clock
    metrics: Metrics
    memory: RequestMemory
    threads: WorkerThreads
    access: Authority
    directory: DataDirectory
    topics: Topics
    inspector: Inspector
    upkeep: Upkeep
    events: Events
    quotas: Quotas
    overload: Overload
    lag_watch: LagWatch
    groups: GroupCoordinator
    pending_offsets: PendingOffsets
    transactions: TransactionCoordinator
    queues: QueueCoordinator
    dead_letters: DeadLetters
    background: tuple[Work, ...]


@asynccontextmanager
async def open_services(
    settings: BrokerSettings, group_settings: GroupSettings, clock: Clock, disk: Disk
) -> AsyncIterator[Services]:
    """Opens the data directory and everything on it; at the end everything appended is synced and closed."""
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        inspector = Inspector(settings.max_decompressed_bytes, check_all=settings.check_records)
        stack.callback(inspector.close)
        threads = WorkerThreads(2, "headrace-read")
        upkeep_thread = WorkerThreads(1, "headrace-upkeep")
        topics_thread = WorkerThreads(1, "headrace-topics")
        committer = Committer(settings.commit_threads)
        for each in (upkeep_thread, threads, topics_thread, committer):
            stack.callback(each.close)
        directory = await _open_directory(settings, threads, disk, metrics)
        stack.push_async_callback(threads.run, directory.close)
        topics = Topics(directory, topics_thread, committer)
        stack.push_async_callback(topics.wait_idle)
        access = Authority(enforced=settings.authenticate, super_users=settings.super_principals())
        stack.callback(access.close)
        await access.load(directory.path, disk)

        events = Events(topics, clock)
        fallen = FallenGroups(topics, metrics, events)
        quotas = Quotas(settings, clock, metrics, threads, disk)
        await quotas.load()

        group_store = GroupStore(topics, threads, clock, group_settings)
        queue_store = QueueStore(topics, threads, clock, group_settings)
        groups = GroupCoordinator(group_store, topics, access, fallen, clock, queues=queue_store.table)
        queues = QueueCoordinator(queue_store, topics, fallen, threads, clock, groups=group_store.table)
        pending_offsets = PendingOffsets(group_store)
        transaction_store = TransactionStore(topics, threads, clock, pending_offsets, group_settings)
        transactions = TransactionCoordinator(transaction_store, topics, directory, threads)
        dead_letters = DeadLetters(
            *(queue_store, topics, directory, access, threads, clock),
            default_partitions=settings.default_partitions,
        )
        await group_store.load()
        await transaction_store.load()
        await queue_store.load()

        async def positions() -> list[GroupPosition]:
            return [*await groups.positions(), *await queues.positions()]

        lag_watch = LagWatch(
            *(positions, topics, fallen, events, threads, clock), interval_ms=settings.lag_check_interval_ms
        )
        overload = Overload(positions, topics, events, metrics, threads, on_deleted=lag_watch.hurry)
        upkeep = Upkeep(topics, upkeep_thread, settings, clock, metrics, on_deleted=lag_watch.hurry)
        yield Services(
            settings=settings,
            clock=clock,
            metrics=metrics,
            memory=RequestMemory(settings.request_memory_bytes),
            threads=threads,
            access=access,
            directory=directory,
            topics=topics,
            inspector=inspector,
            upkeep=upkeep,
            events=events,
            quotas=quotas,
            overload=overload,
            lag_watch=lag_watch,
            groups=groups,
            pending_offsets=pending_offsets,
            transactions=transactions,
            queues=queues,
            dead_letters=dead_letters,
            background=(
                *(group_store.run, transaction_store.run, queue_store.run, dead_letters.run),
                *(upkeep.run, events.run, overload.run, lag_watch.run),
            ),
        )


async def _open_directory(
    settings: BrokerSettings, threads: WorkerThreads, disk: Disk, metrics: Metrics
) -> DataDirectory:
    observe = metrics.sync_seconds.observe
    try:
        return await threads.run(DataDirectory, Path(settings.data), disk=disk, on_sync=observe)
    except OSError as error:
        raise ConfigError(
            f"cannot open the data directory {settings.data} ({error.strerror or error});"
            " mend it or choose another --data"
        ) from error
