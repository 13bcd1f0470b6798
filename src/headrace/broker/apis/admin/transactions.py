"""What administrators ask of transactions: which there are, what they hold open, who writes where."""

import dataclasses
from typing import Any

from headrace.broker.coordinators import TransactionCoordinator
from headrace.broker.log import Topics
from headrace.clock import Clock
from headrace.errors import RetriableError
from headrace.groups import Code
from headrace.groups.consumer import TopicRegex
from headrace.groups.transactions import Transactional, TransactionState
from headrace.wire import Request

__all__ = ["TransactionAdminApis"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TransactionAdminApis:
    """Transactions and producers as administrators see them."""

    topics: Topics
    transactions: TransactionCoordinator
    clock: Clock

    async def list_transactions(self, request: Request) -> dict[str, Any]:
        """By state, producer id, duration and a pattern of the transactional id; all of them must fit."""
        body = request.body
        try:
            producers = await self.transactions.producers()
            pattern = self._pattern(body.transactional_id_pattern)
        except RetriableError:
            return {"error_code": int(Code.COORDINATOR_NOT_AVAILABLE)}
        if pattern is not None and pattern.problem:
            return {"error_code": int(Code.INVALID_REGULAR_EXPRESSION)}
        now_ms = self.transactions.now_ms
        states = set(body.state_filters)
        return {
            "unknown_state_filters": sorted(states - set(TransactionState)),
            "transaction_states": [
                {
                    "transactional_id": name,
                    "producer_id": producer.claim.producer_id,
                    "transaction_state": str(producer.state),
                }
                for name, producer in sorted(producers.items())
                if (not states or producer.state in states)
                and (not body.producer_id_filters or producer.claim.producer_id in body.producer_id_filters)
                and (body.duration_filter < 0 or _duration_ms(producer, now_ms) > body.duration_filter)
                and (pattern is None or pattern.matches(name))
            ],
        }

    def _pattern(self, text: str | None) -> TopicRegex | None:
        """Our own expressions: a hostile one costs no more than its length."""
        limit = self.transactions.settings.group_consumer_regex_max_length
        return TopicRegex(text, limit) if text else None

    async def describe_transactions(self, request: Request) -> dict[str, Any]:
        """The state of each, and the partitions it holds open."""
        try:
            producers = await self.transactions.producers()
        except RetriableError:
            error = int(Code.COORDINATOR_NOT_AVAILABLE)
            return {
                "transaction_states": [
                    {"transactional_id": name, "error_code": error} for name in request.body.transactional_ids
                ]
            }
        return {
            "transaction_states": [
                self._described(name, producers.get(name)) for name in request.body.transactional_ids
            ]
        }

    def _described(self, name: str, producer: Transactional | None) -> dict[str, Any]:
        if producer is None:
            return {"transactional_id": name, "error_code": int(Code.TRANSACTIONAL_ID_NOT_FOUND)}
        touched = producer.ongoing or producer.unfinished
        started_ms = -1
        if producer.ongoing is not None:
            started_ms = self.clock.now_ms() - _duration_ms(producer, self.transactions.now_ms)
        topics: dict[str, list[int]] = {}
        for topic_id, index in sorted(touched.partitions) if touched is not None else ():
            topic = self.topics.with_id(topic_id)
            if topic is not None:
                topics.setdefault(topic.name, []).append(index)
        return {
            "transactional_id": name,
            "transaction_state": str(producer.state),
            "transaction_timeout": producer.timeout_ms,
            "transaction_start_time": started_ms,
            "producer_id": producer.claim.producer_id,
            "producer_epoch": producer.claim.epoch,
            "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()],
        }

    async def describe_producers(self, request: Request) -> dict[str, Any]:
        """Who wrote to a partition lately, and whose transaction is open there."""
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [self._writers(topic.name, index) for index in topic.partition_indexes],
                }
                for topic in request.body.topics
            ]
        }

    def _writers(self, topic: str, index: int) -> dict[str, Any]:
        partition = self.topics.partition(topic, index)
        if partition is None:
            return {"partition_index": index, "error_code": int(Code.UNKNOWN_TOPIC_OR_PARTITION)}
        return {
            "partition_index": index,
            "active_producers": [
                {
                    "producer_id": each.producer_id,
                    "producer_epoch": each.producer_epoch,
                    "last_sequence": each.last_sequence,
                    "last_timestamp": each.last_timestamp_ms,
                    "coordinator_epoch": each.coordinator_epoch,
                    "current_txn_start_offset": each.first_open_offset,
                }
                for each in partition.log.producers()
            ],
        }


def _duration_ms(producer: Transactional, now_ms: int) -> int:
    return now_ms - producer.ongoing.started_ms if producer.ongoing is not None else -1
