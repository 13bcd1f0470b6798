"""A feed's progress as a consumer group: lag for every Kafka tool, and the time of each partition.

The note at a committed offset is JSON, {"run": "…", "time": […], "query": "…", "watermark": …}:
the partition's time at that offset, of that run of the query, and the watermark that the
query has reached. The time is a shortcut and never relied on: where it is missing, or is of
another offset or run, the feed computes it again from the log. It is left out where it is
longer than brokers keep. The watermark is for second stages, of the same query id only: it is
noted when everything that the query made of the records before it is on the log.
"""

import json
from collections.abc import Mapping
from typing import Any

from headrace.client import CommittedOffset, Connection, GroupOffsets, RawFetcher
from headrace.streams.event_time import PartitionTime

__all__ = ["GroupProgress", "stage_offsets", "stage_watermark"]

_MAX_NOTE_BYTES = 4096  # offset.metadata.max.bytes, as Kafka's brokers have it


class GroupProgress:
    """The progress of one run of a query on one topic, kept as the offsets of a group."""

    def __init__(self, connection: Connection, group: str, topic: str, run: str, query_id: str = "") -> None:
        self._offsets = GroupOffsets(connection, group)
        self._topic = topic
        self._run = run
        self._query_id = query_id

    def commit(
        self,
        following: Mapping[int, int],
        times: Mapping[int, PartitionTime],
        watermark_us: int | None = None,
    ) -> None:
        """Notes the next offset of each partition and its time there, durably, and the query's watermark."""
        self._offsets.commit(
            self._topic,
            {
                partition: CommittedOffset(
                    offset, self._note(times.get(partition, PartitionTime()), watermark_us)
                )
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

    def _note(self, time: PartitionTime, watermark_us: int | None) -> str:
        noted = {"query": self._query_id, "watermark": watermark_us}
        note = _text({"run": self._run, "time": time.to_json(), **noted})
        return note if len(note) <= _MAX_NOTE_BYTES else _text(noted)

    def _read(self, note: str) -> PartitionTime | None:
        try:
            fields: dict[str, Any] = json.loads(note)
            if fields["run"] != self._run:
                return None
            time = PartitionTime.from_json(fields["time"])
        except (ValueError, KeyError, TypeError):
            return None
        numbers = [time.seen, time.declared]
        numbers += [number for each in time.sources for number in (each.seen, each.written_us)]
        return time if all(each is None or type(each) is int for each in numbers) else None


def stage_watermark(offsets: GroupOffsets, fetcher: RawFetcher, topic: str, query_id: str) -> int | None:
    """The watermark that a query on a topic has noted as its group's progress; None if it has none."""
    committed = offsets.fetch(topic, sorted(fetcher.layout(topic).leaders))
    found = [_watermark(each.metadata, query_id) for each in committed.values()]
    return max((each for each in found if each is not None), default=None)


def stage_offsets(offsets: GroupOffsets, topic: str, partitions: list[int], query_id: str) -> dict[int, int]:
    """How far a query is on a topic: all that it made of records before these offsets is on the log.

    Partitions of which another query, or nobody, has noted the progress are left out.
    """
    committed = offsets.fetch(topic, partitions)
    return {
        partition: each.offset for partition, each in committed.items() if _is_of(each.metadata, query_id)
    }


def _is_of(note: str, query_id: str) -> bool:
    try:
        return bool(json.loads(note)["query"] == query_id)
    except (ValueError, KeyError, TypeError):
        return False


def _watermark(note: str, query_id: str) -> int | None:
    try:
        fields: dict[str, Any] = json.loads(note)
        watermark = fields["watermark"] if fields["query"] == query_id else None
    except (ValueError, KeyError, TypeError):
        return None
    return watermark if type(watermark) is int else None


def _text(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"))
