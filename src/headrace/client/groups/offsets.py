"""The offsets of a consumer group, read and committed from outside: progress that shows as lag."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from headrace.client.connect import Channel, Connection
from headrace.client.connect.brokers import Brokers, check_code
from headrace.wire import Api

__all__ = ["CommittedOffset", "GroupOffsets"]

# One version of each, which Kafka has spoken since 3.0 and our broker speaks.
_VERSIONS = {Api.FIND_COORDINATOR: 4, Api.OFFSET_COMMIT: 8, Api.OFFSET_FETCH: 8}
_GROUP = 0


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset that a group reads, and the metadata committed with it."""

    offset: int
    metadata: str = ""


class GroupOffsets:
    """The committed offsets of one group; synchronous, for one thread.

    The group must have no members: the broker refuses commits from outside for a group in
    use (RequestError). An unreachable coordinator is retried for `retry_timeout_ms`. Use it
    as a context manager, or `close` it.
    """

    def __init__(self, connection: Connection, group: str) -> None:
        self._group = group
        self._coordinator: Channel | None = None
        self._brokers = Brokers(connection, _VERSIONS, forget=self._forget)

    def fetch(self, topic: str, partitions: list[int]) -> dict[int, CommittedOffset]:
        """The committed offsets of these partitions; those without are left out."""
        return self._brokers.retrying(lambda: self._fetch(topic, partitions))

    def commit(self, topic: str, offsets: Mapping[int, CommittedOffset]) -> None:
        """Commits all of them, durably; raises RequestError if the broker refuses one."""
        if offsets:
            self._brokers.retrying(lambda: self._commit(topic, offsets))

    def close(self) -> None:
        """Closes the connections; they are reopened when next needed."""
        self._brokers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forget(self) -> None:
        self._coordinator = None

    def _channel(self) -> Channel:
        if self._coordinator is None:
            fields = {"key_type": _GROUP, "coordinator_keys": [self._group]}
            found = self._brokers.ask(self._brokers.any(), Api.FIND_COORDINATOR, fields).coordinators[0]
            check_code(found.error_code, f"the coordinator of group {self._group}")
            self._coordinator = self._brokers.at(found.host, found.port)
        return self._coordinator

    def _fetch(self, topic: str, partitions: list[int]) -> dict[int, CommittedOffset]:
        wanted = {"group_id": self._group, "topics": [{"name": topic, "partition_indexes": partitions}]}
        fields = {"groups": [wanted], "require_stable": True}
        found = self._brokers.ask(self._channel(), Api.OFFSET_FETCH, fields).groups[0]
        check_code(found.error_code, f"offsets of group {self._group}")
        committed = {}
        for each in found.topics[0].partitions if found.topics else ():
            check_code(each.error_code, f"offset of group {self._group} in {topic}-{each.partition_index}")
            if each.committed_offset >= 0:
                committed[each.partition_index] = CommittedOffset(each.committed_offset, each.metadata or "")
        return committed

    def _commit(self, topic: str, offsets: Mapping[int, CommittedOffset]) -> None:
        partitions = [
            {
                "partition_index": partition,
                "committed_offset": each.offset,
                "committed_leader_epoch": -1,
                "committed_metadata": each.metadata,
            }
            for partition, each in sorted(offsets.items())
        ]
        fields = {
            "group_id": self._group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": partitions}],
        }
        answer = self._brokers.ask(self._channel(), Api.OFFSET_COMMIT, fields)
        for each in answer.topics[0].partitions:
            check_code(each.error_code, f"group {self._group} in {topic}-{each.partition_index}")
