"""How a lease ends: by an acknowledgement, by giving back, or by time."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from headrace.groups.codes import Code
from headrace.groups.share.config import ShareConfig
from headrace.groups.share.decision import ShareDecision
from headrace.groups.share.events import SharePartitionSaved
from headrace.groups.share.partition import (
    GiveUpReason,
    RecordRun,
    RecordState,
    SharePartition,
    Span,
    advanced,
    pieces,
)

__all__ = ["Ack", "AckType", "acknowledge", "expire", "release", "spelled_out", "woken"]


class AckType(IntEnum):
    """What a consumer says of a record; a gap is an offset that it found no record at."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Ack(NamedTuple):
    """The same acknowledgement for consecutive records."""

    span: Span
    kind: AckType


def spelled_out(first: int, last: int, kinds: Sequence[int]) -> list[Ack] | None:
    """An acknowledgement batch: one kind for all of it, or one each; None if it is neither."""
    if last < first or first < 0 or any(not 0 <= kind <= AckType.RENEW for kind in kinds):
        return None
    if len(kinds) == 1:
        return [Ack(Span(first, last), AckType(kinds[0]))]
    if len(kinds) != last - first + 1:
        return None
    acks: list[Ack] = []
    for offset, kind in enumerate(kinds, first):
        if acks and acks[-1].kind == kind:
            acks[-1] = Ack(Span(acks[-1].span.first, offset), acks[-1].kind)
        else:
            acks.append(Ack(Span(offset, offset), AckType(kind)))
    return acks


def acknowledge(
    partition: SharePartition, member: str, acks: Sequence[Ack], config: ShareConfig, now_ms: int
) -> ShareDecision[SharePartition]:
    """All of the acknowledgements or none; the reply is a Code.

    INVALID_RECORD_STATE unless the member holds every one of the records: also for
    those that are finished, so that of two members who both had a record only one
    is ever told that its acknowledgement counted.
    """
    acks = sorted(acks)
    if any(after.span.first <= before.span.last for before, after in pairwise(acks)):
        return ShareDecision(state=partition, reply=Code.INVALID_REQUEST)
    covered, runs = 0, []
    for piece, number in pieces(partition.runs, [ack.span for ack in acks]):
        if number is None:
            runs.append(piece)
            continue
        if piece.state is not RecordState.ACQUIRED or piece.member != member:
            return ShareDecision(state=partition, reply=Code.INVALID_RECORD_STATE)
        covered += piece.count
        runs.append(_acknowledged(piece, acks[number].kind, config, now_ms))
    if covered != sum(ack.span.last - ack.span.first + 1 for ack in acks):
        return ShareDecision(state=partition, reply=Code.INVALID_RECORD_STATE)
    return _changed(partition, runs, Code.NONE)


def _acknowledged(run: RecordRun, kind: AckType, config: ShareConfig, now_ms: int) -> RecordRun:
    match kind:
        case AckType.ACCEPT:
            return replace(run, state=RecordState.ACKNOWLEDGED)
        case AckType.GAP:
            return replace(run, state=RecordState.ARCHIVED)
        case AckType.REJECT:
            return _given_up(run, config, GiveUpReason.REJECTED)
        case AckType.RELEASE:
            return _freed(run, config, GiveUpReason.RELEASED)
        case AckType.RENEW:
            return replace(run, deadline_ms=now_ms + config.lock_duration_ms)


def _freed(run: RecordRun, config: ShareConfig, reason: GiveUpReason) -> RecordRun:
    """Available to the next member, unless it was delivered often enough."""
    if run.deliveries >= config.delivery_count_limit:
        return _given_up(run, config, reason)
    return replace(run, state=RecordState.AVAILABLE, member="", deadline_ms=0)


def _given_up(run: RecordRun, config: ShareConfig, reason: GiveUpReason) -> RecordRun:
    state = RecordState.ARCHIVING if config.dead_letters else RecordState.ARCHIVED
    return replace(run, state=state, reason=reason, member="", deadline_ms=0)


def _changed(
    partition: SharePartition, runs: Sequence[RecordRun], reply: object
) -> ShareDecision[SharePartition]:
    after = advanced(partition, runs)
    events = () if after == partition else (SharePartitionSaved(partition=after),)
    return ShareDecision(state=after, events=events, reply=reply)


def release(
    partition: SharePartition, member: str, config: ShareConfig, *, delivered: bool
) -> ShareDecision[SharePartition]:
    """Ends every lease of a member that goes; the reply is whether there was one.

    A member that closes in good order says with that it did not look at what it
    gives back (`delivered` is false): such a delivery does not count.
    """
    runs, found = [], False
    for run in partition.runs:
        if run.state is RecordState.ACQUIRED and run.member == member:
            found = True
            run = (
                _freed(run, config, GiveUpReason.EXPIRED)
                if delivered
                else replace(
                    run,
                    state=RecordState.AVAILABLE,
                    deliveries=run.deliveries - 1,
                    member="",
                    deadline_ms=0,
                )
            )
        runs.append(run)
    return _changed(partition, runs, found)


def expire(
    partition: SharePartition, config: ShareConfig, now_ms: int, *, is_kept: Callable[[str], bool]
) -> ShareDecision[SharePartition]:
    """Ends the leases whose time is over; the reply is whether any did.

    Those of members for whom `is_kept` start over.
    """
    runs, ended = [], False
    for run in partition.runs:
        if run.state is RecordState.ACQUIRED and run.deadline_ms <= now_ms:
            if is_kept(run.member):
                run = replace(run, deadline_ms=now_ms + config.lock_duration_ms)
            else:
                ended = True
                run = _freed(run, config, GiveUpReason.EXPIRED)
        runs.append(run)
    return _changed(partition, runs, ended)


def woken(partition: SharePartition, config: ShareConfig, now_ms: int) -> SharePartition:
    """A partition just replayed: every lease starts over, so that a restart takes no record from anybody."""
    deadline_ms = now_ms + config.lock_duration_ms
    runs = tuple(
        replace(run, deadline_ms=deadline_ms) if run.state is RecordState.ACQUIRED else run
        for run in partition.runs
    )
    return replace(partition, runs=runs)
