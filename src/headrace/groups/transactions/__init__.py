"""Transactions as a pure state machine: who a producer is, what it touched, how it ended.

A decision takes what is known of a transactional id, a request and the time, and returns
a `EndVerdict`: what is known from then on, whether to persist it, and the answer. Promises: a
transaction is decided once; epochs only grow; a decision names everything that the
transaction touched. `recover` finds after a restart what was ongoing. No I/O.
"""

from headrace.groups.transactions.add import add, missing
from headrace.groups.transactions.end import complete, end, expire, fence, is_forgettable, next_deadline_ms
from headrace.groups.transactions.events import TransactionalRemoved, TransactionalSaved, TransactionEvent
from headrace.groups.transactions.initialize import InitRequest, initialize, needs_new_id
from headrace.groups.transactions.journal import decode, encode
from headrace.groups.transactions.recovery import Open, Recovered, Stray, recover
from headrace.groups.transactions.state import (
    Claim,
    DecidedEnd,
    EndVerdict,
    Ongoing,
    Transactional,
    TransactionState,
)

__all__ = [
    "Claim",
    "DecidedEnd",
    "EndVerdict",
    "InitRequest",
    "Ongoing",
    "Open",
    "Recovered",
    "Stray",
    "TransactionEvent",
    "TransactionState",
    "Transactional",
    "TransactionalRemoved",
    "TransactionalSaved",
    "add",
    "complete",
    "decode",
    "encode",
    "end",
    "expire",
    "fence",
    "initialize",
    "is_forgettable",
    "missing",
    "needs_new_id",
    "next_deadline_ms",
    "recover",
]
