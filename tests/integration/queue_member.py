"""A member of a queue that does exactly what a test says: requests by hand over a bare connection."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from headrace.client.connect.channel import Channel
from headrace.client.connect.login import Security
from headrace.records import decode_batch, read_header
from headrace.wire import Api

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


class QueueMember:
    """Joins, fetches and acknowledges; keeps the epochs right unless told otherwise."""

    def __init__(
        self,
        port: int,
        group: str,
        name: str,
        topic_id: UUID,
        *,
        partitions: int = 1,
        security: Security | None = None,
    ) -> None:
        self.group, self.name, self.topic_id = group, name, topic_id
        self.partitions = range(partitions)
        self.channel = Channel("127.0.0.1", port, client_id=name, timeout_ms=20_000, security=security)
        self.member_epoch = 0
        self.epoch = 0
        self.got: list[tuple[int, int, bytes | None, int]] = []
        """Partition, offset, value and delivery count of the last fetch."""

    def beat(self, *topics: str, epoch: int | None = None) -> Any:
        fields = {
            "group_id": self.group,
            "member_id": self.name,
            "member_epoch": self.member_epoch if epoch is None else epoch,
            "subscribed_topic_names": list(topics) or None,
        }
        answer = self.channel.request(Api.SHARE_GROUP_HEARTBEAT, 1, fields)
        if not answer.error_code:
            self.member_epoch = answer.member_epoch
        return answer

    def fetch(
        self,
        *,
        wait_ms: int = 20_000,
        acks: Sequence[tuple[int, int, int]] = (),
        epoch: int | None = None,
        most: int = 100,
        by_record: bool = False,
        named: bool = True,
    ) -> Any:
        """One fetch of all partitions; acknowledgements of partition 0 (first, last, kind) go along.

        Without `named` it names none: those that its session knows are meant.
        """
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]}
            for first, last, kind in acks
        ]
        parts = [
            {"partition_index": index, "acknowledgement_batches": batches if index == 0 else []}
            for index in self.partitions
        ]
        fields = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch if epoch is None else epoch,
            "max_wait": wait_ms,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": most,
            "batch_size": most,
            "share_acquire_mode": int(by_record),
            "topics": [{"topic_id": self.topic_id, "partitions": parts}] if named else [],
        }
        answer = self.channel.request(Api.SHARE_FETCH, 2, fields, wait_ms=wait_ms)
        if not answer.error_code:
            self.epoch += 1
        self.got = list(_records(answer))
        return answer

    def acknowledge(self, *acks: tuple[int, int, int], epoch: int | None = None, renew: bool = False) -> Any:
        """Acknowledges records of partition 0; the partition's error code, or the request's."""
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": [kind]}
            for first, last, kind in acks
        ]
        parts = [{"partition_index": 0, "acknowledgement_batches": batches}]
        fields = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch if epoch is None else epoch,
            "is_renew_ack": renew,
            "topics": [{"topic_id": self.topic_id, "partitions": parts}] if batches else [],
        }
        answer = self.channel.request(Api.SHARE_ACKNOWLEDGE, 2, fields)
        if answer.error_code:
            return answer.error_code
        self.epoch += 1
        return answer.responses[0].partitions[0].error_code if answer.responses else 0

    def values(self) -> list[tuple[bytes | None, int]]:
        """Value and delivery count of what was fetched last."""
        return [(value, deliveries) for _, _, value, deliveries in self.got]

    def close(self) -> None:
        """The connection goes, nothing is said."""
        self.channel.close()


def _records(answer: Any) -> Any:
    for topic in answer.responses:
        for part in topic.partitions:
            counts = {
                offset: each.delivery_count
                for each in part.acquired_records
                for offset in range(each.first_offset, each.last_offset + 1)
            }
            data, position = bytes(part.records or b""), 0
            while position < len(data):
                for record in decode_batch(data, position):
                    if record.offset in counts:
                        yield part.partition_index, record.offset, record.value, counts[record.offset]
                position += read_header(data, position).size_bytes
