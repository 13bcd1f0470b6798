"""Offsets in transactions: stored with the group, counted when the transaction commits.

They are records of the group's own topic, synced before the producer is answered. The
end of the transaction is one batch: the offsets committed, or not, and what was
pending gone. So after a crash the transaction's decision finds either all of
them pending or none.
"""

from collections.abc import Iterable

from headrace.broker.coordinators.group_store import GroupStore
from headrace.broker.coordinators.group_table import GroupEntry
from headrace.groups import (
    Code,
    GroupEvent,
    OffsetCommitted,
    OffsetCommitter,
    PendingOffset,
    PendingOffsetRemoved,
    commit_refusal,
)
from headrace.groups.classic import ClassicGroup
from headrace.groups.transactions import Claim

__all__ = ["PendingOffsets"]


class PendingOffsets:
    """What the coordinator of transactions needs of groups. Event loop only."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._table = store.table
        self._journal = store.journal

    async def commit(
        self, group_id: str, who: OffsetCommitter, producer: Claim, offsets: Iterable[OffsetCommitted]
    ) -> Code:
        """Stores all of the offsets, or none, for the producer's transaction to decide on."""
        self._journal.check_available()
        entry = self._table.get(group_id)
        error = commit_refusal(entry.group if entry else None, who)
        if error:
            return await self._journal.settled(error)
        if entry is None:
            if len(self._table) >= self._store.settings.group_max_count:
                return Code.POLICY_VIOLATION
            entry = GroupEntry(ClassicGroup(group_id=group_id))
        pending = [
            PendingOffset(producer_id=producer.producer_id, producer_epoch=producer.epoch, offset=offset)
            for offset in offsets
        ]
        self._journal.append(pending)
        if pending:
            self._table.put(entry)
        for each in pending:
            self._table.replay_pending(each)
        return await self._journal.settled(Code.NONE)

    def end(self, group_id: str, producer: Claim, *, commit: bool) -> None:
        """Commits or drops what the producer stored up to its epoch; `wait_synced` until it is on disk."""
        self._journal.check_available()
        entry = self._table.get(group_id)
        if entry is None:
            return
        ended = [
            each
            for (producer_id, _, _), each in entry.pending.items()
            if producer_id == producer.producer_id and each.producer_epoch <= producer.epoch
        ]
        committed: list[GroupEvent] = [each.offset for each in ended] if commit else []
        removed = [_removed(each) for each in ended]
        self._journal.append([*committed, *removed])
        for each, gone in zip(ended, removed, strict=True):
            if commit:
                self._table.replay_offset(each.offset)
            self._table.replay_pending(gone)

    async def wait_synced(self) -> None:
        """Returns when everything stored and ended so far is on disk; RetriableError if that failed."""
        await self._journal.settled(None)

    def producers(self) -> set[tuple[str, Claim]]:
        """Groups, and the producers whose transactions they wait for."""
        return {
            (entry.group.group_id, Claim(each.producer_id, each.producer_epoch))
            for entry in self._table
            for each in entry.pending.values()
        }

    def partitions(self, group_id: str) -> frozenset[tuple[str, int]]:
        """Partitions whose committed offset may change by the end of a transaction."""
        entry = self._table.get(group_id)
        return frozenset((topic, index) for _, topic, index in entry.pending) if entry else frozenset()


def _removed(pending: PendingOffset) -> PendingOffsetRemoved:
    offset = pending.offset
    return PendingOffsetRemoved(
        group_id=offset.group_id,
        producer_id=pending.producer_id,
        topic=offset.topic,
        partition=offset.partition,
    )
