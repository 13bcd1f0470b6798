"""Where a partition begins, ends, and was at a time; deleting its oldest records."""

import dataclasses
import logging
from collections import Counter
from typing import Any

from headrace.broker.apis.records.fetch_attempt import READ_COMMITTED
from headrace.broker.log import Partition, Topics, WorkerThreads
from headrace.errors import CorruptionError, DiskError, RequestError
from headrace.wire import ErrorCode, Request

__all__ = ["OffsetApis"]

logger = logging.getLogger(__name__)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
)
FIRST_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
UNKNOWN = int(ErrorCode.unknown_topic_or_partition)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OffsetApis:
    """What a partition's offsets are, and where its records begin."""

    topics: Topics
    threads: WorkerThreads

    async def list_offsets(self, request: Request) -> dict[str, Any]:
        """Offsets by place or by time; -1 where no record is that late.

        A partition that cannot be read has an error of its own, and keeps no other from an answer.
        For a reader of committed records the log ends at the last stable offset.
        """
        committed = request.body.isolation_level == READ_COMMITTED
        asked = Counter(
            (topic.name, part.partition_index) for topic in request.body.topics for part in topic.partitions
        )
        topics = []
        for topic in request.body.topics:
            parts = {}
            for part in topic.partitions:
                partition = self.topics.partition(topic.name, part.partition_index)
                if asked[topic.name, part.partition_index] > 1:
                    found = {"error_code": int(ErrorCode.invalid_request)}
                elif partition is None:
                    found = {"error_code": UNKNOWN}
                elif part.timestamp < 0 and request.api_version < FIRST_VERSIONS.get(part.timestamp, 0):
                    found = {"error_code": int(ErrorCode.unsupported_version)}
                elif part.current_leader_epoch > 0:
                    found = {"error_code": int(ErrorCode.unknown_leader_epoch)}
                else:
                    found = await self._offset(partition, part.timestamp, committed)
                parts[part.partition_index] = {"partition_index": part.partition_index, **found}
            topics.append({"name": topic.name, "partitions": list(parts.values())})
        return {"topics": topics}

    async def _offset(self, partition: Partition, timestamp: int, committed: bool) -> dict[str, int]:
        log = partition.log
        found = {"error_code": 0, "leader_epoch": 0}
        if timestamp == LATEST:
            return {**found, "offset": partition.readable_end(committed=committed)}
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return {**found, "offset": log.start_offset}
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return {**found, "offset": -1, "leader_epoch": -1}
        try:
            if timestamp == MAX_TIMESTAMP:
                timed = await self.threads.run(log.largest_timestamp)
            elif timestamp >= 0:
                timed = await self.threads.run(log.offset_for_time, timestamp)
            else:
                return {"error_code": int(ErrorCode.unsupported_version)}
        except CorruptionError:
            return {"error_code": int(ErrorCode.corrupt_message)}
        except DiskError:  # the place is noted: health and the broker's log name it
            return {"error_code": int(ErrorCode.kafka_storage_error)}
        if timed is None or timed.offset >= partition.readable_end(committed=committed):
            return {"error_code": 0}
        return {**found, "offset": timed.offset, "timestamp": timed.timestamp_ms}

    async def delete_records(self, request: Request) -> dict[str, Any]:
        """Moves the log start up; -1 means the high watermark."""
        topics = []
        for topic in request.body.topics:
            parts = []
            for part in topic.partitions:
                answer = {"partition_index": part.partition_index, "low_watermark": -1, "error_code": 0}
                partition = self.topics.partition(topic.name, part.partition_index)
                try:
                    if partition is None:
                        raise RequestError("no such partition", code=UNKNOWN)
                    self._check_may_lose_records(topic.name)
                    log = partition.log
                    offset = log.high_watermark if part.offset == -1 else part.offset
                    answer["low_watermark"] = await self.threads.run(log.delete_before, offset)
                except RequestError as error:
                    answer["error_code"] = error.code
                except DiskError as error:
                    logger.error("records of %s were not deleted: %s", topic.name, error)
                    answer["error_code"] = int(ErrorCode.kafka_storage_error)
                parts.append(answer)
            topics.append({"name": topic.name, "partitions": parts})
        return {"topics": topics}

    def _check_may_lose_records(self, name: str) -> None:
        """A topic that is compacted only promises to keep the newest record of every key."""
        topic = self.topics.named(name)
        if topic is not None and not topic.config.deletes:
            raise RequestError(f"{name} has no delete in cleanup.policy", code=ErrorCode.policy_violation)

    async def offset_for_leader_epoch(self, request: Request) -> dict[str, Any]:
        """One node never changes its epoch, 0: it ends at the high watermark."""
        topics = []
        for topic in request.body.topics:
            parts = []
            for part in topic.partitions:
                partition = self.topics.partition(topic.topic, part.partition)
                answer: dict[str, Any] = {"partition": part.partition, "error_code": UNKNOWN}
                if partition is not None and part.current_leader_epoch > 0:
                    answer["error_code"] = int(ErrorCode.unknown_leader_epoch)
                elif partition is not None and part.leader_epoch != 0:
                    answer["error_code"] = 0
                elif partition is not None:
                    answer.update(error_code=0, leader_epoch=0, end_offset=partition.log.high_watermark)
                parts.append(answer)
            topics.append({"topic": topic.topic, "partitions": parts})
        return {"topics": topics}
