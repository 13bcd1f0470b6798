"""A feed's progress as a consumer group: lag for every Kafka tool, and the time of each partition.

The note at a committed offset is JSON, {"run": "…", "seen": …, "declared": …}: the
partition's time at that offset, of that run of the query. It is a shortcut and never
relied on: where it is missing, or is of another offset or run, the feed computes it
again from the log.
"""

import json
from collections.abc import Mapping
from typing import Any

from headrace.client import CommittedOffset, Connection, GroupOffsets
from headrace.streams.event_time import PartitionTime

__all__ = ["GroupProgress"]


class GroupProgress:
    """The progress of one run of a query on one topic, kept as the offsets of a group."""

    def __init__(self, connection: Connection, group: str, topic: str, run: str) -> None:
        self._offsets = GroupOffsets(connection, group)
        self._topic = topic
        self._run = run

    def commit(self, following: Mapping[int, int], times: Mapping[int, PartitionTime]) -> None:
        """Notes the next offset of each partition and its time there, durably."""
        self._offsets.commit(
            self._topic,
            {
                partition: CommittedOffset(offset, self._note(times.get(partition, PartitionTime())))
                for partition, offset in following.items()
            },
        )

    def fetch(self, following: Mapping[int, int]) -> dict[int, PartitionTime]:
        """The times noted at exactly these offsets by this run; partitions without are left out."""
        committed = self._offsets.fetch(self._topic, sorted(following))
        found = {}
        for partition, each in committed.items():
            time = self._read(each.metadata) if each.offset == following[partition] else None
            if time is not None:
                found[partition] = time
        return found

    def close(self) -> None:
        """Closes the connections."""
        self._offsets.close()

    def _note(self, time: PartitionTime) -> str:
        return json.dumps({"run": self._run, "seen": time.seen, "declared": time.declared})

    def _read(self, note: str) -> PartitionTime | None:
        try:
            fields: dict[str, Any] = json.loads(note)
            if fields["run"] != self._run:
                return None
            time = PartitionTime(fields["seen"], fields["declared"])
        except (ValueError, KeyError, TypeError):
            return None
        legal = all(each is None or type(each) is int for each in (time.seen, time.declared))
        return time if legal else None
