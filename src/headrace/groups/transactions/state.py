"""What the coordinator knows of one transactional id.

Theory of operation. A producer is known by its id and epoch (its `Claim`); epochs
only grow, and a producer with an old one is fenced. A transaction is *ongoing*
from the first partition or group that is added to it. It is *decided* once, to
commit or to abort; the decision names everything the transaction touched, is made
durable, then carried out (a marker in each partition, the group's offsets taken over
or dropped), then *complete*.

What is ongoing is never written down. Coordinator and partitions are one node, so
after a restart the partitions' own open transactions, and the groups' pending
offsets, say what was (`recovery`).

The epoch is bumped with every decision of a client that learns of it (KIP-890), and
whenever the coordinator aborts by itself. So records of one transaction can be
told from those of the next by their epoch, and the next may begin while the last is
being carried out. Older clients keep their epoch over transactions; their decisions say
where each partition ended, and what begins behind that is of the next. Such a decision
is *separable*, and that it is complete need not be written down: a restart finds
nothing of it open. Pending offsets have no such place, so an older client that also
commits offsets begins the next only after the last is complete, on disk.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from headrace.groups.codes import Code
from headrace.groups.events import Partitions, TopicPartition

__all__ = [
    "MAX_EPOCH",
    "Claim",
    "DecidedEnd",
    "EndVerdict",
    "Ongoing",
    "TransactionState",
    "Transactional",
    "refusal",
]

# The last epoch a client gets; the one after is left for a marker that fences it.
MAX_EPOCH = 32_766


class TransactionState(StrEnum):
    """Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


class Claim(NamedTuple):
    """Who a producer says it is."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ongoing:
    """What a transaction touched so far."""

    started_ms: int
    partitions: Partitions = frozenset()
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedEnd:
    """How a transaction ends; of `claim`, as its producer was when it was decided.

    `partitions` and `groups` are what is to be told; nothing is left of them once `complete`.
    `ends`, if the epoch stays, are the ends of the partitions' logs when it was decided.
    """

    claim: Claim
    marker_epoch: int
    commit: bool
    partitions: Partitions = frozenset()
    groups: frozenset[str] = frozenset()
    complete: bool = False
    ends: Mapping[TopicPartition, int] | None = None

    @property
    def separable(self) -> bool:
        """Whether records of it can be told from those of the producer's next transaction."""
        return self.marker_epoch > self.claim.epoch or (self.ends is not None and not self.groups)

    def includes(self, claim: Claim, partition: TopicPartition | None, first_offset: int) -> bool:
        """Whether something that is open belongs to it: told by its epoch, or by where it begins."""
        if claim.producer_id != self.claim.producer_id or claim.epoch > self.claim.epoch:
            return False
        if claim.epoch < self.claim.epoch or self.marker_epoch > self.claim.epoch:
            return True
        if partition is None or self.ends is None:
            return True
        return first_offset < self.ends.get(partition, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactional:
    """A transactional id and its producer.

    `last` is the claim that a producer may still bring who has not learned of the
    current one. `recovered` says that no decision was made since the broker
    started: what was added before the start and left no record is not known. `early` says
    that a commit came before anything of its transaction, and was sent away once.
    """

    transactional_id: str
    claim: Claim
    last: Claim | None = None
    timeout_ms: int = 0
    ongoing: Ongoing | None = None
    decided: DecidedEnd | None = None
    recovered: bool = False
    early: bool = False
    changed_ms: int = 0

    @property
    def state(self) -> TransactionState:
        if self.ongoing is not None:
            return TransactionState.ONGOING
        if self.decided is None:
            return TransactionState.EMPTY
        if self.decided.complete:
            commit, abort = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
        else:
            commit, abort = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
        return commit if self.decided.commit else abort

    @property
    def unfinished(self) -> DecidedEnd | None:
        """A decision that is still being carried out."""
        return self.decided if self.decided is not None and not self.decided.complete else None

    @property
    def is_exhausted(self) -> bool:
        """There is no further epoch to give; the next one needs a new producer id."""
        return self.claim.epoch >= MAX_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class EndVerdict:
    """Persist `producer` first if `save`, then answer.

    `error` None: the answer depends on a decision that is being carried out; ask
    again when it is complete. `claim` is what the answer tells the producer it is.
    """

    producer: Transactional
    save: bool = False
    error: Code | None = Code.NONE

    @property
    def claim(self) -> Claim:
        return self.producer.claim


def refusal(producer: Transactional, claim: Claim) -> Code:
    """Why this is not the producer it claims to be, or NONE."""
    if claim.producer_id != producer.claim.producer_id:
        return Code.INVALID_PRODUCER_ID_MAPPING
    return Code.NONE if claim.epoch == producer.claim.epoch <= MAX_EPOCH else Code.PRODUCER_FENCED
