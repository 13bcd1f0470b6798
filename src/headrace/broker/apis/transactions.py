"""Transactional producers: their ids, what their transactions touch, how they end."""

import dataclasses
from collections.abc import Awaitable, Iterable
from typing import Any

from headrace.broker.apis.committed_offsets import commit_problem, committed
from headrace.broker.coordinators import PendingOffsets, TransactionCoordinator
from headrace.broker.log import INTERNAL_TOPICS, Topics, WorkerThreads
from headrace.clock import Clock
from headrace.errors import DiskError, RequestError, RetriableError
from headrace.groups import Code, OffsetCommitted, OffsetCommitter, Partitions
from headrace.groups.transactions import Claim, InitRequest
from headrace.storage import DataDirectory
from headrace.wire import Api, ErrorCode, Request

__all__ = ["TransactionApis"]

# Since these versions a client knows PRODUCER_FENCED; before, it is told INVALID_PRODUCER_EPOCH.
FENCED_SINCE = {
    Api.INIT_PRODUCER_ID: 4,
    Api.ADD_PARTITIONS_TO_TXN: 2,
    Api.ADD_OFFSETS_TO_TXN: 2,
    Api.END_TXN: 2,
}
BUMPS_SINCE = 5
IMPLICIT_SINCE = 5
UNKNOWN, NOT_ATTEMPTED = Code.UNKNOWN_TOPIC_OR_PARTITION, Code.OPERATION_NOT_ATTEMPTED


async def _code(request: Request, attempt: Awaitable[Any]) -> tuple[int, Any]:
    """What the attempt gave, or the code to answer with in the request's version."""
    try:
        return 0, await attempt
    except RetriableError:
        return int(Code.COORDINATOR_NOT_AVAILABLE), None
    except RequestError as error:
        code = error.code
        if code == Code.PRODUCER_FENCED and request.api_version < FENCED_SINCE[Api(request.api_key)]:
            code = Code.INVALID_PRODUCER_EPOCH
        return int(code), None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TransactionApis:
    """Transactional producers."""

    topics: Topics
    directory: DataDirectory
    transactions: TransactionCoordinator
    pending_offsets: PendingOffsets
    clock: Clock
    threads: WorkerThreads

    # --- who the producer is ----------------------------------------------------------------------

    async def init_producer_id(self, request: Request) -> dict[str, Any]:
        """A new id for an idempotent producer, never given before; its next epoch for a transactional one."""
        body = request.body
        if body.transactional_id is None:
            try:
                producer_id = await self.threads.run(self.directory.allocate_producer_ids, 1)
            except DiskError:
                return {
                    "error_code": int(ErrorCode.kafka_storage_error),
                    "producer_id": -1,
                    "producer_epoch": -1,
                }
            return {"producer_id": producer_id, "producer_epoch": 0}
        if not body.transactional_id or body.enable2_pc or body.keep_prepared_txn:
            return {"error_code": int(Code.INVALID_REQUEST), "producer_id": -1, "producer_epoch": -1}
        known = Claim(body.producer_id, body.producer_epoch)
        if (known.producer_id < 0) != (known.epoch < 0):  # who one was is both or neither
            return {"error_code": int(Code.INVALID_REQUEST), "producer_id": -1, "producer_epoch": -1}
        wanted = InitRequest(
            transactional_id=body.transactional_id,
            timeout_ms=body.transaction_timeout,
            expected=known if known.producer_id >= 0 else None,
        )
        error, claim = await _code(request, self.transactions.initialize(wanted))
        return {"error_code": error, **_producer(claim)}

    # --- what a transaction touches ---------------------------------------------------------------

    async def add_partitions(self, request: Request) -> dict[str, Any]:
        """All of the partitions or none. Versions from 4 on are for brokers of a cluster, and not served."""
        body = request.body
        claim = Claim(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        topics = body.v3_and_below_topics
        found, missing = self._partitions(topics)
        if missing:
            codes = _results(topics, lambda *each: UNKNOWN if each in missing else NOT_ATTEMPTED)
        else:
            added = self.transactions.add(body.v3_and_below_transactional_id, claim, partitions=found)
            error, _ = await _code(request, added)
            codes = _results(topics, lambda *_: error)
        return {"results_by_topic_v3_and_below": codes}

    def _partitions(self, topics: Iterable[Any]) -> tuple[Partitions, set[tuple[str, int]]]:
        """The ones that a client may write to, and the names of the others."""
        found, missing = set(), set()
        for asked in topics:
            topic = self.topics.named(asked.name)
            for index in asked.partitions:
                writable = topic is not None and topic.name not in INTERNAL_TOPICS
                if topic is not None and writable and 0 <= index < len(topic.partitions):
                    found.add((topic.id, index))
                else:
                    missing.add((asked.name, index))
        return frozenset(found), missing

    async def add_offsets(self, request: Request) -> dict[str, Any]:
        """A group whose offsets the transaction will commit."""
        body = request.body
        if not body.group_id:
            return {"error_code": int(Code.INVALID_GROUP_ID)}
        added = self.transactions.add(body.transactional_id, _claim(body), group=body.group_id)
        error, _ = await _code(request, added)
        return {"error_code": error}

    async def txn_offset_commit(self, request: Request) -> dict[str, Any]:
        """Stores offsets that count once the transaction commits."""
        body = request.body
        accepted: list[OffsetCommitted] = []
        problems: dict[tuple[str, int], Code] = {}
        now_ms, most_metadata = self.clock.now_ms(), self.transactions.settings.offset_metadata_max_bytes
        for asked in body.topics:
            topic = self.topics.named(asked.name)
            for partition in asked.partitions:
                problem = Code.UNKNOWN_TOPIC_OR_PARTITION
                if topic is not None:
                    problem = commit_problem(topic, partition, most_metadata)
                problems[asked.name, partition.partition_index] = problem
                if topic is not None and not problem:
                    epoch = partition.committed_leader_epoch if request.api_version >= 2 else -1
                    accepted.append(
                        committed(body.group_id, topic, partition, now_ms=now_ms, leader_epoch=epoch)
                    )
        error = await self._commit_pending(request, accepted)
        topics = [
            {
                "name": asked.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": int(error or problems[asked.name, each.partition_index]),
                    }
                    for each in asked.partitions
                ],
            }
            for asked in body.topics
        ]
        return {"topics": topics}

    async def _commit_pending(self, request: Request, offsets: list[OffsetCommitted]) -> int:
        body = request.body
        who = OffsetCommitter(
            member_id=body.member_id,
            instance_id=body.group_instance_id,
            generation=body.generation_id,
            transactional=True,
        )
        claim = _claim(body)
        try:
            # Between the admission and the append, which begins the commit, nothing else runs.
            later = self.transactions.admit_group(
                body.transactional_id, claim, body.group_id, implicit=request.api_version >= IMPLICIT_SINCE
            )
            if later is not None:
                await later
            error = await self.pending_offsets.commit(body.group_id, who, claim, offsets)
        except RetriableError:
            return Code.COORDINATOR_NOT_AVAILABLE
        except RequestError as refused:
            return refused.code
        return Code.ILLEGAL_GENERATION if error is Code.STALE_MEMBER_EPOCH else error

    # --- how it ends ------------------------------------------------------------------------------

    async def end_txn(self, request: Request) -> dict[str, Any]:
        """Answered when the decision is on disk; version 5 learns its next epoch."""
        body = request.body
        ended = self.transactions.end(
            body.transactional_id,
            _claim(body),
            commit=body.committed,
            bumps=request.api_version >= BUMPS_SINCE,
        )
        error, claim = await _code(request, ended)
        return {"error_code": error, **_producer(claim)}


def _producer(claim: Claim | None) -> dict[str, int]:
    return {
        "producer_id": claim.producer_id if claim is not None else -1,
        "producer_epoch": claim.epoch if claim is not None else -1,
    }


def _claim(body: Any) -> Claim:
    return Claim(body.producer_id, body.producer_epoch)


def _results(topics: Iterable[Any], code_of: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": int(code_of(topic.name, index))}
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]
