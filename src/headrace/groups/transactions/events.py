"""What is persisted of transactions: one event is one record, the whole value of its key."""

from dataclasses import dataclass
from typing import TypeAlias

from headrace.groups.transactions.state import Transactional

__all__ = ["TransactionEvent", "TransactionalRemoved", "TransactionalSaved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalSaved:
    """A transactional id got a producer, or its transaction was decided, or carried out."""

    producer: Transactional


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalRemoved:
    """A transactional id was not used for long and is forgotten."""

    transactional_id: str


TransactionEvent: TypeAlias = TransactionalSaved | TransactionalRemoved
