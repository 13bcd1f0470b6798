"""The shell around the pure machine of transactions: decisions made durable, then carried out.

Theory of operation. A decision is persisted and synced; then its producer is answered
and the markers are appended to the partitions, in that one step, so that a record of
the producer's next transaction always comes behind them. When all markers are
synced, and the groups have taken over their offsets, it is complete; that is persisted
only where a restart could not tell. Nothing else is written down: at start, open
transactions in the partitions and pending offsets in the groups say what was ongoing
(`groups.transactions.recovery`).

Carrying out is a task of its own for each decision, owned by `run`. A partition that cannot
be written is tried again until it can; until then its producer begins nothing new.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.broker.coordinator_journal import Journal
from headrace.broker.journaled import Journaled
from headrace.broker.partition import Partition
from headrace.errors import CorruptionError, HeadraceError, RequestError, RetriableError
from headrace.groups import GroupSettings
from headrace.groups import transactions as machine
from headrace.groups.events import Partitions, TopicPartition
from headrace.groups.transactions import (
    Claim,
    Decided,
    Open,
    Stray,
    Transactional,
    TransactionalRemoved,
    TransactionalSaved,
    TransactionEvent,
    Verdict,
)
from headrace.groups.transactions.journal import decode, encode
from headrace.storage import Marker

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["TRANSACTIONS_TOPIC", "Ending", "TransactionsShell"]

logger = logging.getLogger(__name__)

TRANSACTIONS_TOPIC = "__transaction_state"
RETRY_DELAY_S = 1.0
_COORDINATOR_EPOCH = 0
_FORGET_INTERVAL_MS = 3_600_000


Tell: TypeAlias = Callable[[], asyncio.Future[None] | None]
"""Tells one partition or group how a transaction ended; the future is done when it is on disk there."""
Attempt: TypeAlias = asyncio.Future[None] | HeadraceError | None
"""What came of telling: a sync to wait for, why it could not be tried, or nothing to do."""


class Ending:
    """A decision on its way.

    `announced` is done when it is durable and its markers were first appended,
    `done` when it is complete.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.announced: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self._attempts: list[Attempt] | None = None

    @property
    def queued(self) -> bool:
        """Whether every marker stands in its partition, so that what is appended now comes behind it."""
        return self._attempts is not None and not any(map(_has_failed, self._attempts))

    def announce(self, attempts: "list[Attempt]") -> None:
        """The decision is durable, and was told to everybody once more."""
        self._attempts = attempts
        if not self.announced.done():
            self.announced.set_result(None)

    def fail(self, error: Exception) -> None:
        for future in (self.announced, self.done):
            if not future.done():
                future.set_exception(error)
                future.exception()  # perhaps nobody waits: mark it as seen


class TransactionsShell(Journaled[TransactionEvent]):
    """Holds every transactional id, and carries decisions out. Event loop only."""

    def __init__(self, broker: "Broker", settings: GroupSettings) -> None:
        journal = Journal(broker, TRANSACTIONS_TOPIC, "transactions", encode=encode, decode=decode)
        super().__init__(broker, journal)
        self.settings = settings
        self._producers: dict[str, Transactional] = {}
        self._endings: dict[str, Ending] = {}
        self._due: list[tuple[int, str]] = []
        self._scheduled: dict[str, int] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._unstarted: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._restarted = True

    # --- life ---------------------------------------------------------------------------------

    async def load(self) -> None:
        """Replays the topic and finds out what was ongoing; goes on with what was decided."""
        self._producers, self._due, self._scheduled = {}, [], {}
        try:
            await self._journal.open(self._replay, skip_damage=self.settings.transactions_skip_damage)
        except CorruptionError as error:
            logger.error(
                "transactions are unavailable: %s; or set transactions_skip_damage and accept the loss", error
            )
            return
        found = machine.recover(
            self._producers, self._opened(), restarted=self._restarted, now_ms=self.now_ms
        )
        self._restarted = False
        self._producers, self._available = found.producers, True
        for name, producer in found.producers.items():
            self._put(name, producer)
        for stray in found.strays:
            self._abort(stray)

    def _replay(self, event: TransactionEvent, timestamp_ms: int) -> None:
        if isinstance(event, TransactionalSaved):
            idle_ms = max(self._broker.clock.now_ms() - timestamp_ms, 0)
            producer = replace(event.producer, changed_ms=self.now_ms - idle_ms)
            self._producers[producer.transactional_id] = producer

    def _opened(self) -> Iterable[Open]:
        for topic in self._broker.topics.all():
            for index, log in enumerate(topic.partitions):
                for each in log.open_transactions():
                    claim = Claim(each.producer_id, each.producer_epoch)
                    yield Open(claim=claim, partition=(topic.id, index), first_offset=each.first_offset)
        for group_id, claim in self._broker.coordinator.pending_producers():
            yield Open(claim=claim, group=group_id)

    def _abort(self, stray: Stray) -> None:
        """Ends what nobody else will."""
        opened = stray.opened
        logger.warning("a transaction of producer %s that nobody owns is aborted", opened.claim)
        decided = Decided(
            claim=opened.claim,
            marker_epoch=stray.marker_epoch,
            commit=False,
            partitions=frozenset([opened.partition] if opened.partition is not None else []),
            groups=frozenset([opened.group] if opened.group is not None else []),
        )
        self._spawn(lambda: self._tell(decided, Ending()))

    async def run(self) -> None:
        """Carries out, expires what is overdue, reloads after a failure; until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            unstarted, self._unstarted = self._unstarted, []
            for call in unstarted:
                self._tasks.create_task(self._logged(call))
            forget_ms = self.now_ms + _FORGET_INTERVAL_MS
            while True:
                await self._wait_until(min([forget_ms, *(due_ms for due_ms, _ in self._due[:1])]))
                try:
                    await self._reload_if_failed()
                    self._expire()
                    if self.now_ms >= forget_ms:
                        forget_ms = self.now_ms + _FORGET_INTERVAL_MS
                        self.forget_expired()
                except RetriableError as error:
                    logger.error("%s", error)

    def _spawn(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._tasks is None:
            self._unstarted.append(call)
        else:
            self._tasks.create_task(self._logged(call))

    def _give_up_waiting(self, error: RetriableError) -> None:
        self._due.clear()
        self._scheduled.clear()
        endings, self._endings = self._endings, {}
        for ending in endings.values():
            ending.fail(error)

    # --- decisions ----------------------------------------------------------------------------

    def take(self, verdict: Verdict) -> None:
        """Makes a verdict hold: it is queued for the disk, then it counts, then it is carried out."""
        if verdict.save:
            self.persist([TransactionalSaved(producer=verdict.producer)])
        self._put(verdict.producer.transactional_id, verdict.producer)

    def _put(self, name: str, producer: Transactional) -> None:
        self._producers[name] = producer
        decided = producer.unfinished
        if decided is not None and name not in self._endings:
            ending = self._endings[name] = Ending()
            self._spawn(lambda: self._carry_out(name, decided, ending))
        due_ms = machine.next_deadline_ms(producer)
        if due_ms is not None and self._scheduled.get(name, due_ms + 1) > due_ms:
            self._scheduled[name] = due_ms
            heapq.heappush(self._due, (due_ms, name))
            if self._due[0][0] == due_ms:
                self._wake.set()

    # --- carrying out -------------------------------------------------------------------------

    async def _logged(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await call()
        except RetriableError as error:
            logger.error("%s", error)  # unavailable; it is carried out after the reload
        except Exception:
            logger.exception("a transaction could not be ended; the next start of the broker ends it")

    async def _carry_out(self, name: str, decided: Decided, ending: Ending) -> None:
        try:
            await self.settled(None)
        except RetriableError as error:
            ending.fail(error)
            raise
        await self._tell(decided, ending)
        if self._endings.get(name) is not ending:
            return  # the topic of transactions was reloaded meanwhile, and it is carried out anew
        del self._endings[name]
        self.take(machine.complete(self._producers[name]))
        if not ending.done.done():
            ending.done.set_result(None)

    async def _tell(self, decided: Decided, ending: Ending) -> None:
        """Returns when every partition and group has it on disk, however often that takes to try."""
        tell: list[Tell] = [partial(self._mark, each, decided) for each in decided.partitions]
        tell += [partial(self._end_offsets, each, decided) for each in decided.groups]
        while not ending.done.done():
            attempts = [_attempt(call) for call in tell]
            ending.announce(attempts)
            syncs = [each for each in attempts if isinstance(each, asyncio.Future)]
            if syncs:
                await asyncio.wait(syncs)
            tell = [call for call, each in zip(tell, attempts, strict=True) if _has_failed(each)]
            if not tell:
                return
            await asyncio.sleep(RETRY_DELAY_S)

    def _partition(self, where: TopicPartition) -> Partition | None:
        """None if it was deleted meanwhile."""
        topic = self._broker.topics.with_id(where[0])
        return self._broker.topics.of(topic, where[1]) if topic is not None else None

    def _hurry(self, decided: Decided, *, but: Partitions = frozenset()) -> None:
        """Its producer goes on: markers are committed now, `but` those that its records take along."""
        for where in decided.partitions - but:
            partition = self._partition(where)
            if partition is not None:
                partition.commit_postponed()

    def _mark(self, where: TopicPartition, decided: Decided) -> asyncio.Future[None] | None:
        partition = self._partition(where)
        if partition is None:
            return None
        marker = Marker(decided.claim.producer_id, decided.marker_epoch, _COORDINATOR_EPOCH, decided.commit)
        now_ms = self._broker.clock.now_ms()
        partition.append_marker(marker, now_ms=now_ms, may_wait=len(decided.partitions) > 1)
        return partition.synced()

    def _end_offsets(self, group_id: str, decided: Decided) -> asyncio.Future[None]:
        groups = self._broker.coordinator
        groups.end_pending(group_id, decided.claim, commit=decided.commit)
        return asyncio.ensure_future(groups.settled(None))

    # --- time ---------------------------------------------------------------------------------

    def _expire(self) -> None:
        now_ms = self.now_ms
        while self._due and self._due[0][0] <= now_ms:
            due_ms, name = heapq.heappop(self._due)
            producer = self._producers.get(name)
            if producer is None or self._scheduled.get(name) != due_ms:
                continue
            del self._scheduled[name]
            verdict = machine.expire(producer, now_ms)
            if verdict.save:
                logger.info("the transaction of %s took too long and is aborted", name)
            if verdict.error is None:  # the one before is still being carried out
                self._scheduled[name] = now_ms + 1_000
                heapq.heappush(self._due, (now_ms + 1_000, name))
            else:
                self.take(verdict)

    def forget_expired(self) -> None:
        """Forgets transactional ids that were not used for long."""
        gone = [
            name
            for name, producer in self._producers.items()
            if machine.is_forgettable(producer, self.settings, self.now_ms)
        ]
        self.persist(TransactionalRemoved(transactional_id=name) for name in gone)
        for name in gone:
            del self._producers[name]


def _attempt(call: Tell) -> Attempt:
    try:
        return call()
    except RequestError as error:
        logger.warning("a partition needs no end of a transaction: %s", error)
        return None
    except HeadraceError as error:
        logger.error("the end of a transaction is tried again: %s", error)
        return error


def _has_failed(attempt: Attempt) -> bool:
    if isinstance(attempt, asyncio.Future):
        return attempt.done() and attempt.exception() is not None
    return attempt is not None
