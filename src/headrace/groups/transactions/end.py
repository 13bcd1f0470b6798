"""How transactions end: by their producer, by time, by a newer instance; each once.

Ends that come too early: Kafka's Java producer (4.3) looks whether it has
unsent records, and afterwards takes its lock to send the end. On a busy machine the
application may begin, send and commit in between; the end then overtakes the records.
Where partitions are added by producing to them the coordinator has heard of nothing, and a
refusal is the end of that producer. Told CONCURRENT_TRANSACTIONS it comes again, behind
its records. A commit that comes again without any is refused.
"""

from collections.abc import Mapping
from dataclasses import replace

from headrace.groups.codes import Code
from headrace.groups.events import TopicPartition
from headrace.groups.settings import GroupSettings
from headrace.groups.transactions.state import (
    MAX_EPOCH,
    Claim,
    DecidedEnd,
    EndVerdict,
    Ongoing,
    Transactional,
    refusal,
)

__all__ = ["complete", "end", "expire", "fence", "is_forgettable", "next_deadline_ms"]


def end(
    producer: Transactional,
    claim: Claim,
    *,
    commit: bool,
    bumps: bool,
    ends: Mapping[TopicPartition, int] | None = None,
    new_id: int,
    now_ms: int,
) -> EndVerdict:
    """EndTxn. `bumps`: the client learns its next epoch from the answer (version 5).

    `ends`: where the logs of the partitions it touched end now, unless the epoch tells.

    Repeated, it gets the same answer and changes nothing; of an earlier transaction, it
    never touches a later one. A commit that comes before its records is sent away once.
    """
    decided = producer.decided
    if decided is not None and claim == decided.claim and claim != producer.claim:
        return EndVerdict(producer=producer, error=_repeated(producer, decided, commit=commit, bumps=bumps))
    error = refusal(producer, claim)
    if error:
        return EndVerdict(producer=producer, error=error)
    if producer.ongoing is None:
        if not bumps and decided is not None and claim == decided.claim and commit == decided.commit:
            return EndVerdict(producer=producer)
        if bumps and commit and not producer.early:
            return EndVerdict(producer=replace(producer, early=True), error=Code.CONCURRENT_TRANSACTIONS)
        if not producer.recovered and (commit or not bumps):
            return EndVerdict(producer=producer, error=Code.INVALID_TXN_STATE)
    if producer.unfinished is not None:
        return EndVerdict(producer=producer, error=None)
    return _decide(producer, commit=commit, bumps=bumps, ends=ends, new_id=new_id, now_ms=now_ms)


def _repeated(producer: Transactional, decided: DecidedEnd, *, commit: bool, bumps: bool) -> Code:
    """The answer to the end of a transaction after which the epoch went on."""
    if not bumps or producer.ongoing is not None or (commit and not decided.commit):
        return Code.PRODUCER_FENCED
    if producer.claim.epoch > MAX_EPOCH:  # nobody works under it: the producer starts over with a new id
        return Code.PRODUCER_FENCED
    return Code.NONE if commit == decided.commit else Code.INVALID_TXN_STATE


def fence(producer: Transactional, *, now_ms: int) -> EndVerdict:
    """Aborts what is ongoing and shuts its producer out by the next epoch."""
    return _decide(producer, commit=False, bumps=True, new_id=None, now_ms=now_ms)


def _decide(
    producer: Transactional,
    *,
    commit: bool,
    bumps: bool,
    ends: Mapping[TopicPartition, int] | None = None,
    new_id: int | None,
    now_ms: int,
) -> EndVerdict:
    assert producer.unfinished is None, "a decision is carried out before the next is made"
    ongoing = producer.ongoing or Ongoing(started_ms=now_ms)
    claim = producer.claim
    following = Claim(claim.producer_id, claim.epoch + 1) if bumps else claim
    decided = DecidedEnd(
        claim=claim,
        marker_epoch=following.epoch,
        commit=commit,
        partitions=ongoing.partitions,
        groups=ongoing.groups,
        complete=not ongoing.partitions and not ongoing.groups,
        ends=None if bumps else ends,
    )
    if following.epoch > MAX_EPOCH and new_id is not None:
        following = Claim(new_id, 0)
    ended = replace(
        producer,
        claim=following,
        last=claim if bumps else producer.last,
        ongoing=None,
        decided=decided,
        recovered=False,
        early=False,
        changed_ms=now_ms,
    )
    return EndVerdict(producer=ended, save=True)


def complete(producer: Transactional) -> EndVerdict:
    """Everybody concerned has been told, durably; written down only if a restart could not tell."""
    decided = producer.unfinished
    if decided is None:
        return EndVerdict(producer=producer)
    ends = decided.ends if decided.separable else None  # it stays what it was, without its groups too
    done = replace(decided, partitions=frozenset(), groups=frozenset(), complete=True, ends=ends)
    return EndVerdict(producer=replace(producer, decided=done), save=not decided.separable)


def next_deadline_ms(producer: Transactional) -> int | None:
    """When `expire` is to look at it."""
    return producer.ongoing.started_ms + producer.timeout_ms if producer.ongoing is not None else None


def expire(producer: Transactional, now_ms: int) -> EndVerdict:
    """Aborts a transaction whose time is over; after the one before has been carried out."""
    due_ms = next_deadline_ms(producer)
    if due_ms is None or now_ms < due_ms:
        return EndVerdict(producer=producer)
    if producer.unfinished is not None:
        return EndVerdict(producer=producer, error=None)
    return fence(producer, now_ms=now_ms)


def is_forgettable(producer: Transactional, settings: GroupSettings, now_ms: int) -> bool:
    """Nothing is open, and nothing was for long."""
    idle = producer.ongoing is None and producer.unfinished is None
    return idle and now_ms - producer.changed_ms >= settings.transactional_id_expiration_ms
