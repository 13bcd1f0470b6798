"""Groups and committed offsets as the broker holds them in memory: what the journal's events add up to."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.groups import (
    ClassicGroupSaved,
    ConsumerGroupSaved,
    ConsumerMemberRemoved,
    ConsumerMemberSaved,
    GroupEvent,
    GroupRemoved,
    OffsetCommitted,
    OffsetGroup,
    OffsetRemoved,
    PendingOffset,
    PendingOffsetRemoved,
    classic,
    consumer,
    is_empty,
)

__all__ = ["GroupEntry", "GroupTable"]


@dataclass(slots=True)
class GroupEntry:
    """One group with its offsets, and those that transactions will commit or drop.

    `changed_ms` is the wall-clock time of its last record as a group, so of an empty
    group it is the time it became empty.
    """

    group: OffsetGroup
    offsets: dict[tuple[str, int], OffsetCommitted] = field(default_factory=dict)
    changed_ms: int = 0
    pending: dict[tuple[int, str, int], PendingOffset] = field(default_factory=dict)

    @property
    def leaves_no_trace(self) -> bool:
        """Nothing of the group was ever persisted, and nobody is in it."""
        began = self.group.generation if isinstance(self.group, classic.ClassicGroup) else self.group.epoch
        return began == 0 and not self.keeps_offsets and is_empty(self.group)

    @property
    def keeps_offsets(self) -> bool:
        """Something would be lost with the group."""
        return bool(self.offsets or self.pending)


class GroupTable:
    """Every group by its id."""

    def __init__(self) -> None:
        self._entries: dict[str, GroupEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[GroupEntry]:
        return iter(tuple(self._entries.values()))

    def __contains__(self, group_id: object) -> bool:
        """Whether the group id belongs to a group of consumers."""
        return group_id in self._entries

    def clear(self) -> None:
        self._entries.clear()

    def get(self, group_id: str) -> GroupEntry | None:
        return self._entries.get(group_id)

    def put(self, entry: GroupEntry) -> None:
        self._entries[entry.group.group_id] = entry

    def drop(self, group_id: str) -> None:
        self._entries.pop(group_id, None)

    def replay(self, event: GroupEvent, timestamp_ms: int) -> None:
        """Applies one persisted event; the last one of a key wins."""
        match event:
            case OffsetCommitted() | OffsetRemoved():
                self.replay_offset(event)
            case PendingOffset() | PendingOffsetRemoved():
                self.replay_pending(event)
            case GroupRemoved():
                self._remove(event.group_id)
            case ConsumerMemberRemoved() if not self._is_consumer(event.group_id):
                pass  # of a group that has since been removed or changed its protocol
            case _:
                self._replay_group(event, timestamp_ms)

    def replay_offset(self, event: OffsetCommitted | OffsetRemoved) -> None:
        """Applies a commit or a deletion of one offset."""
        key = (event.topic, event.partition)
        if isinstance(event, OffsetCommitted):
            self._entry(event.group_id).offsets[key] = event
        elif (entry := self._entries.get(event.group_id)) is not None:
            entry.offsets.pop(key, None)

    def replay_pending(self, event: PendingOffset | PendingOffsetRemoved) -> None:
        """Applies what a transaction stored, or its end."""
        if isinstance(event, PendingOffset):
            offset = event.offset
            entry = self._entry(offset.group_id)
            entry.pending[event.producer_id, offset.topic, offset.partition] = event
        elif (known := self._entries.get(event.group_id)) is not None:
            known.pending.pop((event.producer_id, event.topic, event.partition), None)

    def _replay_group(
        self,
        event: ClassicGroupSaved | ConsumerGroupSaved | ConsumerMemberSaved | ConsumerMemberRemoved,
        timestamp_ms: int,
    ) -> None:
        entry = self._entry(event.group_id)
        entry.changed_ms = timestamp_ms
        if isinstance(event, ClassicGroupSaved):
            entry.group = classic.replay(event)
        else:
            known = entry.group if isinstance(entry.group, consumer.ConsumerGroup) else None
            entry.group = consumer.replay(known, event)

    def _is_consumer(self, group_id: str) -> bool:
        entry = self._entries.get(group_id)
        return entry is not None and isinstance(entry.group, consumer.ConsumerGroup)

    def _entry(self, group_id: str) -> GroupEntry:
        entry = self._entries.get(group_id)
        if entry is None:
            entry = GroupEntry(classic.ClassicGroup(group_id=group_id))
            self._entries[group_id] = entry
        return entry

    def _remove(self, group_id: str) -> None:
        """Forgets the group; offsets have records of their own, and those without are kept."""
        entry = self._entries.get(group_id)
        if entry is None:
            return
        if entry.keeps_offsets:
            entry.group = classic.ClassicGroup(group_id=group_id)
        else:
            self.drop(group_id)
