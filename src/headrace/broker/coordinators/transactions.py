"""The coordinator of transactions: requests in, decisions of the pure machine made durable, answers out.

Where a request has to wait until the producer's last transaction is carried out, it
waits here; a client that had to try again would only come back later than
need be. After `WAIT_S` it must try again after all (CONCURRENT_TRANSACTIONS).
"""

import asyncio
import logging
from collections.abc import Awaitable

from headrace.broker.coordinators.journal import unavailable
from headrace.broker.coordinators.transaction_store import TransactionStore
from headrace.broker.log import Topics, WorkerThreads
from headrace.errors import DiskError, RequestError
from headrace.groups import Code, Partitions, TopicPartition
from headrace.groups import transactions as machine
from headrace.groups.transactions import Claim, EndVerdict, InitRequest, Transactional
from headrace.storage import DataDirectory

__all__ = ["IMPLICIT_SINCE", "TransactionCoordinator"]

logger = logging.getLogger(__name__)

# Produce requests of this version add their partitions to the transaction themselves.
IMPLICIT_SINCE = 12
WAIT_S = 10.0


class TransactionCoordinator:
    """Transactional producers of one broker. Event loop only.

    A method returns when what it answers is on disk. It raises RetriableError
    (COORDINATOR_NOT_AVAILABLE) when that failed, and RequestError with the code of a refusal.
    """

    def __init__(
        self, store: TransactionStore, topics: Topics, directory: DataDirectory, threads: WorkerThreads
    ) -> None:
        self.settings = store.settings
        self._store = store
        self._journal = store.journal
        self._topics = topics
        self._directory = directory
        self._threads = threads

    @property
    def now_ms(self) -> int:
        """The time in which transactions are measured."""
        return self._store.now_ms

    def check_available(self) -> None:
        """Raises RetriableError while transactions cannot be served."""
        self._journal.check_available()

    # --- who the producer is ------------------------------------------------------------------

    async def initialize(self, request: InitRequest) -> Claim:
        """The producer's id and epoch from now on; whatever was ongoing is aborted before."""
        name = request.transactional_id
        while True:
            new_id = await self._new_id(name)
            verdict = machine.initialize(
                self._store.producers.get(name),
                request,
                self.settings,
                new_id=new_id,
                now_ms=self._store.now_ms,
            )
            if verdict.error:
                raise _refused(verdict.error, name)
            self._store.take(verdict)
            if verdict.error is not None:
                return await self._journal.settled(verdict.claim)
            await self._wait_done(name)

    async def _new_id(self, name: str) -> int:
        """A producer id that nobody had, if the decision that follows may need one; -1 otherwise."""
        self._journal.check_available()
        if not machine.needs_new_id(self._store.producers.get(name)):
            return -1
        try:
            new_id = await self._threads.run(self._directory.allocate_producer_ids, 1)
        except DiskError as error:
            raise unavailable(f"no producer id can be given: {error}") from error
        self._journal.check_available()
        return new_id if machine.needs_new_id(self._store.producers.get(name)) else -1

    # --- what a transaction touches -----------------------------------------------------------

    async def add(
        self, name: str, claim: Claim, *, partitions: Partitions = frozenset(), group: str | None = None
    ) -> None:
        """Adds to the transaction; answered when nothing of the one before can be taken for this one."""
        groups = frozenset([group] if group is not None else [])
        while (later := self._add(name, claim, partitions, groups, may_add=True)) is not None:
            await later
        decided = self._known(name).decided
        if decided is not None and not decided.separable:
            await self._journal.settled(None)

    def admit(
        self,
        producer_id: int,
        producer_epoch: int,
        transactional_id: str,
        topic: str,
        index: int,
        version: int,
    ) -> Awaitable[None] | None:
        """Lets a batch of a transaction into a partition; append it with nothing in between.

        If something awaitable is returned the batch is admitted when that is done. Raises
        RequestError with Produce's codes.
        """
        found = self._topics.named(topic)
        if found is None:
            raise RequestError(f"there is no topic {topic}", code=Code.UNKNOWN_TOPIC_OR_PARTITION)
        claim = Claim(producer_id, producer_epoch)
        return self._admit(
            transactional_id, claim, partition=(found.id, index), may_add=version >= IMPLICIT_SINCE
        )

    def admit_group(self, name: str, claim: Claim, group: str, *, implicit: bool) -> Awaitable[None] | None:
        """Lets offsets of a group into a transaction, like `admit`."""
        return self._admit(name, claim, group=group, may_add=implicit)

    def _admit(
        self,
        name: str,
        claim: Claim,
        *,
        partition: TopicPartition | None = None,
        group: str | None = None,
        may_add: bool,
    ) -> Awaitable[None] | None:
        self._journal.check_available()
        partitions = frozenset([partition] if partition is not None else [])
        groups = frozenset([group] if group is not None else [])
        try:
            later = self._add(name, claim, partitions, groups, may_add=may_add)
        except RequestError as error:
            if error.code == Code.PRODUCER_FENCED:  # what producers of data expect
                error.code = Code.INVALID_PRODUCER_EPOCH
            raise
        return None if later is None else self._admit_later(later, name, claim, partition, group, may_add)

    async def _admit_later(
        self,
        later: Awaitable[None],
        name: str,
        claim: Claim,
        partition: TopicPartition | None,
        group: str | None,
        may_add: bool,
    ) -> None:
        await later
        again = self._admit(name, claim, partition=partition, group=group, may_add=may_add)
        if again is not None:
            await again

    def _add(
        self, name: str, claim: Claim, partitions: Partitions, groups: frozenset[str], *, may_add: bool
    ) -> Awaitable[None] | None:
        """Adds at once, or returns what is to be awaited first; refuses what is missing unless `may_add`."""
        self._journal.check_available()
        producer = self._known(name)
        ending = self._store.endings.get(name)
        blocked = ending is not None and not ending.queued
        ongoing = producer.ongoing
        if (
            ongoing is not None
            and not blocked
            and producer.claim == claim
            and partitions <= ongoing.partitions
            and groups <= ongoing.groups
        ):
            return None
        if not may_add:
            error = machine.missing(producer, claim, partitions=partitions, groups=groups)
            if error:
                raise _refused(error, name)
        verdict = machine.add(
            producer, claim, partitions=partitions, groups=groups, now_ms=self._store.now_ms
        )
        if verdict.error:
            raise _refused(verdict.error, name)
        if verdict.error is None or blocked:
            return self._wait_done(name)
        if producer.unfinished is not None:
            self._store.markers.hurry(producer.unfinished, but=partitions)
        self._store.take(verdict)
        return None

    def _known(self, name: str) -> Transactional:
        producer = self._store.producers.get(name)
        if producer is None:
            raise _refused(Code.INVALID_PRODUCER_ID_MAPPING, name)
        return producer

    # --- how it ends --------------------------------------------------------------------------

    async def end(self, name: str, claim: Claim, *, commit: bool, bumps: bool) -> Claim:
        """Decides; answered when that is durable. Who the producer is from now on."""
        while True:
            self._journal.check_available()
            self._known(name)
            new_id = await self._new_id(name)
            producer = self._known(name)
            verdict = machine.end(
                producer,
                claim,
                commit=commit,
                bumps=bumps,
                ends=None if bumps else self._ends(producer),
                new_id=new_id,
                now_ms=self._store.now_ms,
            )
            self._store.take(verdict)
            if verdict.error:
                if verdict.error is Code.INVALID_TXN_STATE:  # a client's mistake, or one of ours
                    asked = "commit" if commit else "abort"
                    logger.warning("%r: a request to %s as %s is refused: %s", name, asked, claim, producer)
                elif verdict.error is Code.CONCURRENT_TRANSACTIONS:
                    logger.info(
                        "%r: a commit as %s came before its records, and is to come again", name, claim
                    )
                raise _refused(verdict.error, name)
            if verdict.error is not None:
                return await self._announced(name, verdict)
            await self._wait_done(name)

    def _ends(self, producer: Transactional) -> dict[TopicPartition, int]:
        """Where the logs end of all that its transaction touched; what it appends next comes behind."""
        touched = producer.ongoing.partitions if producer.ongoing is not None else ()
        found = {where: self._store.markers.partition(where) for where in touched}
        return {
            where: partition.log.end_offset for where, partition in found.items() if partition is not None
        }

    async def _announced(self, name: str, verdict: EndVerdict) -> Claim:
        """Once the decision is durable, and in the partitions before anything that its answer may lead to."""
        ending = self._store.endings.get(name)
        if ending is not None and verdict.producer.unfinished is not None:
            await asyncio.wait([ending.announced])
            ending.announced.result()
        return await self._journal.settled(verdict.claim)

    async def _wait_done(self, name: str) -> None:
        ending = self._store.endings.get(name)
        if ending is None:
            return
        unfinished = self._known(name).unfinished
        if unfinished is not None:
            self._store.markers.hurry(unfinished)
        await asyncio.wait([ending.done], timeout=WAIT_S)
        if not ending.done.done():
            raise _refused(Code.CONCURRENT_TRANSACTIONS, name)
        ending.done.result()

    # --- administration -----------------------------------------------------------------------

    async def producers(self) -> dict[str, Transactional]:
        """Everything that is known, by transactional id."""
        self._journal.check_available()
        return await self._journal.settled(dict(self._store.producers))


def _refused(code: Code, name: str) -> RequestError:
    reasons = {
        Code.PRODUCER_FENCED: "a newer instance of the producer took over, or its transaction took too long",
        Code.INVALID_PRODUCER_ID_MAPPING: "the transactional id belongs to another producer id, or to none",
        Code.INVALID_TXN_STATE: "the transaction is not in a state that allows this",
        Code.INVALID_TRANSACTION_TIMEOUT: "the time-out is not within transaction_max_timeout_ms",
        Code.CONCURRENT_TRANSACTIONS: "its last transaction is still being carried out, or nothing of this"
        " one has arrived; try again",
    }
    return RequestError(f"transactional id {name}: {reasons.get(code, code.name)}", code=code)
