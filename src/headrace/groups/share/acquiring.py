"""Who gets which records: a member takes a lease on what is available."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.groups.share.decision import ShareDecision
from headrace.groups.share.events import SharePartitionSaved
from headrace.groups.share.partition import (
    FINISHED,
    RecordRun,
    RecordState,
    SharePartition,
    Span,
    advanced,
    pieces,
)

__all__ = ["Acquired", "Taking", "acquire", "cut"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """Records that the caller now holds, delivered for the `deliveries`th time."""

    first: int
    last: int
    deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """Who takes, how many, until when.

    `whole_batches` lets the last batch exceed both `max_records` and `max_locks`, the most
    that may be in flight: a member that reads in batches gets the bytes of a batch once.
    """

    member: str
    max_records: int
    whole_batches: bool
    max_locks: int
    deadline_ms: int


def acquire(
    partition: SharePartition, batches: Sequence[tuple[Span, bool]], taking: Taking
) -> ShareDecision[SharePartition]:
    """Takes what is available of the batches, in their order; the reply lists it.

    A batch is its offsets and whether it holds records to deliver: the others
    (markers, aborted transactions), and offsets that are between batches, are
    archived. Batches come in the order of the log, without gaps that are filled
    by others, from `next_offset` on.
    """
    taken: list[Acquired] = []
    room = taking.max_locks - partition.in_flight
    left = taking.max_records
    runs: list[RecordRun] = []
    window = list(_extended(partition, batches))
    for piece, number in pieces(window, [span for span, _ in batches]):
        is_new = piece.first >= partition.end_offset
        if number is None or not batches[number][1]:
            if is_new or (number is not None and piece.state is RecordState.AVAILABLE):
                piece = replace(piece, state=RecordState.ARCHIVED)
            runs.append(piece)
            continue
        if piece.state is not RecordState.AVAILABLE:
            runs.append(piece)
            continue
        allowed = min(left, room) if is_new else left
        if taking.whole_batches and (allowed > 0 or _begun(taken, batches[number][0])):
            allowed = piece.count
        wanted = min(piece.count, allowed)
        if wanted > 0:
            got = replace(
                piece,
                last=piece.first + wanted - 1,
                state=RecordState.ACQUIRED,
                deliveries=piece.deliveries + 1,
                member=taking.member,
                deadline_ms=taking.deadline_ms,
            )
            runs.append(got)
            _note(taken, got)
            left -= wanted
            room -= wanted if is_new else 0
        if wanted < piece.count:
            if is_new:
                break  # the window ends here
            runs.append(replace(piece, first=piece.first + max(wanted, 0)))
    after = advanced(partition, _trimmed(runs, partition.end_offset))
    events = () if after == partition else (SharePartitionSaved(partition=after),)
    return ShareDecision(state=after, events=events, reply=tuple(taken))


def _extended(partition: SharePartition, batches: Sequence[tuple[Span, bool]]) -> list[RecordRun]:
    """The window up to the end of the batches; what was never delivered is available."""
    end = partition.end_offset
    last = max((span.last for span, _ in batches), default=-1)
    if last < end:
        return list(partition.runs)
    return [*partition.runs, RecordRun(first=end, last=last, state=RecordState.AVAILABLE)]


def _begun(taken: list[Acquired], batch: Span) -> bool:
    return bool(taken) and taken[-1].last >= batch.first


def _note(taken: list[Acquired], run: RecordRun) -> None:
    if taken and taken[-1].last + 1 == run.first and taken[-1].deliveries == run.deliveries:
        taken[-1] = replace(taken[-1], last=run.last)
    else:
        taken.append(Acquired(first=run.first, last=run.last, deliveries=run.deliveries))


def _trimmed(runs: list[RecordRun], end: int) -> list[RecordRun]:
    """Without what at the end was never delivered after all."""
    while runs and runs[-1].first >= end and runs[-1].state is RecordState.AVAILABLE:
        runs.pop()
    return runs


def cut(partition: SharePartition, log_start: int) -> ShareDecision[SharePartition]:
    """Forgets what the log no longer has; the reply is how many records were lost to the queue by that."""
    if log_start <= partition.start_offset:
        return ShareDecision(state=partition, reply=0)
    finished = sum(
        min(run.last, log_start - 1) - run.first + 1
        for run in partition.runs
        if run.state in FINISHED and run.first < log_start
    )
    lost = log_start - partition.start_offset - finished
    runs = [replace(run, first=max(run.first, log_start)) for run in partition.runs if run.last >= log_start]
    burial = partition.burial
    gone = burial is not None and any(span.first < log_start for span in burial.spans)
    after = replace(
        partition,
        start_offset=log_start,
        burial=None if gone else burial,
        # Nobody knows whether that batch was written, so its number is not used again.
        producer_id=-1 if gone else partition.producer_id,
        sequence=0 if gone else partition.sequence,
    )
    after = advanced(after, runs)
    return ShareDecision(state=after, events=(SharePartitionSaved(partition=after),), reply=lost)
