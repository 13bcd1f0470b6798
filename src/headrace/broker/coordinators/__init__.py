"""Coordinators of groups, transactions and queues: pure decisions made durable, then carried out."""

from headrace.broker.coordinators.group_store import GroupStore
from headrace.broker.coordinators.group_table import GroupEntry
from headrace.broker.coordinators.groups import GroupCoordinator, new_member_id
from headrace.broker.coordinators.pending_offsets import PendingOffsets
from headrace.broker.coordinators.transaction_store import TransactionStore
from headrace.broker.coordinators.transactions import IMPLICIT_SINCE, TransactionCoordinator

__all__ = [
    "IMPLICIT_SINCE",
    "GroupCoordinator",
    "GroupEntry",
    "GroupStore",
    "PendingOffsets",
    "TransactionCoordinator",
    "TransactionStore",
    "new_member_id",
]
