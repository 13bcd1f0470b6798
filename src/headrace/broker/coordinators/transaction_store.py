"""Transactional ids, kept durable: the shell around the pure machine of `groups.transactions`.

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
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any

from headrace.broker.coordinators.deadlines import Deadlines
from headrace.broker.coordinators.journal import Journal
from headrace.broker.coordinators.pending_offsets import PendingOffsets
from headrace.broker.coordinators.transaction_markers import Ending, MarkerWriter
from headrace.broker.log import Topics, WorkerThreads
from headrace.clock import Clock
from headrace.errors import RetriableError
from headrace.groups import GroupSettings
from headrace.groups import transactions as machine
from headrace.groups.transactions import (
    Claim,
    DecidedEnd,
    EndVerdict,
    Open,
    Stray,
    Transactional,
    TransactionalRemoved,
    TransactionalSaved,
    TransactionEvent,
    decode,
    encode,
)

__all__ = ["TRANSACTIONS_TOPIC", "TransactionStore"]

logger = logging.getLogger(__name__)

TRANSACTIONS_TOPIC = "__transaction_state"
EXPIRY_RETRY_MS = 1_000
_FORGET_INTERVAL_MS = 3_600_000


class TransactionStore:
    """Holds every transactional id, and has decisions carried out. Event loop only."""

    def __init__(
        self,
        topics: Topics,
        threads: WorkerThreads,
        clock: Clock,
        pending: PendingOffsets,
        settings: GroupSettings,
    ) -> None:
        self.settings = settings
        self.producers: dict[str, Transactional] = {}
        self.endings: dict[str, Ending] = {}
        self.markers = MarkerWriter(topics, pending, clock)
        self.journal: Journal[TransactionEvent] = Journal(
            topics,
            threads,
            clock,
            topic=TRANSACTIONS_TOPIC,
            what="transactions",
            encode=encode,
            decode=decode,
            on_failure=self._give_up,
        )
        self._topics = topics
        self._clock = clock
        self._pending = pending
        self._deadlines: Deadlines[str] = Deadlines(clock)
        self._tasks: asyncio.TaskGroup | None = None
        self._unstarted: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._restarted = True

    @property
    def now_ms(self) -> int:
        """The time in which deadlines are measured."""
        return self._deadlines.now_ms

    # --- life ---------------------------------------------------------------------------------

    async def load(self) -> None:
        """Replays the topic and finds out what was ongoing; goes on with what was decided."""
        self.producers = {}
        self._deadlines.clear()
        skip_damage = self.settings.transactions_skip_damage
        replay = self._replay
        if not await self.journal.open(replay, skip_damage=skip_damage, setting="transactions_skip_damage"):
            return
        found = machine.recover(self.producers, self._opened(), restarted=self._restarted, now_ms=self.now_ms)
        self._restarted = False
        self.producers = found.producers
        self.journal.serve()
        for name, producer in found.producers.items():
            self._put(name, producer)
        for stray in found.strays:
            self._abort(stray)

    def _replay(self, event: TransactionEvent, timestamp_ms: int) -> None:
        if isinstance(event, TransactionalSaved):
            idle_ms = max(self._clock.now_ms() - timestamp_ms, 0)
            producer = replace(event.producer, changed_ms=self.now_ms - idle_ms)
            self.producers[producer.transactional_id] = producer

    def _opened(self) -> Iterable[Open]:
        for topic in self._topics.all():
            for index, log in enumerate(topic.partitions):
                for each in log.open_transactions():
                    claim = Claim(each.producer_id, each.producer_epoch)
                    yield Open(claim=claim, partition=(topic.id, index), first_offset=each.first_offset)
        for group_id, claim in self._pending.producers():
            yield Open(claim=claim, group=group_id)

    def _abort(self, stray: Stray) -> None:
        """Ends a transaction that no transactional id knows of."""
        opened = stray.opened
        logger.warning("a transaction of producer %s without a transactional id is aborted", opened.claim)
        decided = DecidedEnd(
            claim=opened.claim,
            marker_epoch=stray.marker_epoch,
            commit=False,
            partitions=frozenset([opened.partition] if opened.partition is not None else []),
            groups=frozenset([opened.group] if opened.group is not None else []),
        )
        self._spawn(lambda: self.markers.write(decided, Ending()))

    async def run(self) -> None:
        """Carries out, expires what is overdue, reloads after a failure; until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            unstarted, self._unstarted = self._unstarted, []
            for call in unstarted:
                self._tasks.create_task(self._logged(call))
            forget_ms = self.now_ms + _FORGET_INTERVAL_MS
            while True:
                await self._deadlines.wait(forget_ms)
                try:
                    await self.journal.reload_if_failed(self.load)
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

    def _give_up(self, error: RetriableError) -> None:
        """Fails the requests that wait for an end; `run` reloads."""
        self._deadlines.clear()
        endings, self.endings = self.endings, {}
        for ending in endings.values():
            ending.fail(error)
        self._deadlines.wake()

    # --- decisions ----------------------------------------------------------------------------

    def take(self, verdict: EndVerdict) -> None:
        """Makes a verdict hold: it is queued for the disk, then it counts, then it is carried out."""
        if verdict.save:
            self.journal.append([TransactionalSaved(producer=verdict.producer)])
        self._put(verdict.producer.transactional_id, verdict.producer)

    def _put(self, name: str, producer: Transactional) -> None:
        self.producers[name] = producer
        decided = producer.unfinished
        if decided is not None and name not in self.endings:
            ending = self.endings[name] = Ending()
            self._spawn(lambda: self._carry_out(name, decided, ending))
        self._deadlines.schedule(name, machine.next_deadline_ms(producer))

    async def _logged(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await call()
        except RetriableError as error:
            logger.error("%s", error)  # unavailable; it is carried out after the reload
        except Exception:
            logger.exception("a transaction could not be ended; the next start of the broker ends it")

    async def _carry_out(self, name: str, decided: DecidedEnd, ending: Ending) -> None:
        try:
            await self.journal.settled(None)
        except RetriableError as error:
            ending.fail(error)
            raise
        await self.markers.write(decided, ending)
        if self.endings.get(name) is not ending:
            return  # the topic of transactions was reloaded meanwhile, and it is carried out again
        del self.endings[name]
        self.take(machine.complete(self.producers[name]))
        if not ending.done.done():
            ending.done.set_result(None)

    # --- time ---------------------------------------------------------------------------------

    def _expire(self) -> None:
        now_ms = self.now_ms
        for name in self._deadlines.due():
            producer = self.producers.get(name)
            if producer is None:
                continue
            verdict = machine.expire(producer, now_ms)
            if verdict.save:
                logger.info("the transaction of %s took too long and is aborted", name)
            if verdict.error is None:  # the one before is still being carried out
                self._deadlines.schedule(name, now_ms + EXPIRY_RETRY_MS)
            else:
                self.take(verdict)

    def forget_expired(self) -> None:
        """Forgets transactional ids that were not used for long."""
        gone = [
            name
            for name, producer in self.producers.items()
            if machine.is_forgettable(producer, self.settings, self.now_ms)
        ]
        self.journal.append(TransactionalRemoved(transactional_id=name) for name in gone)
        for name in gone:
            del self.producers[name]
