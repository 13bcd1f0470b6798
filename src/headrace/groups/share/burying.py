"""Dead letters: from given up to archived, in two steps that a crash in between repeats without harm."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from headrace.groups.share.decision import ShareDecision
from headrace.groups.share.events import SharePartitionSaved
from headrace.groups.share.partition import (
    Burial,
    RecordRun,
    RecordState,
    SharePartition,
    Span,
    advanced,
    pieces,
)

__all__ = ["begin_burial", "finish_burial", "given_up", "spans_of"]

_SEQUENCES = 2**31


def given_up(partition: SharePartition) -> list[RecordRun]:
    """What waits for its burial."""
    return [run for run in partition.runs if run.state is RecordState.ARCHIVING]


def spans_of(offsets: Iterable[int]) -> tuple[Span, ...]:
    """Ascending offsets as spans."""
    found: list[Span] = []
    for offset in offsets:
        if found and found[-1].last + 1 == offset:
            found[-1] = Span(found[-1].first, offset)
        else:
            found.append(Span(offset, offset))
    return tuple(found)


def begin_burial(
    partition: SharePartition, burial: Burial, missing: Collection[Span] = ()
) -> ShareDecision[SharePartition]:
    """Notes what is about to be written. Offsets at which the log has nothing (`missing`) are archived."""
    after = _archived(partition, missing)
    after = replace(
        after,
        burial=burial if burial.count else None,
        producer_id=burial.producer_id,
        sequence=burial.sequence,
    )
    return ShareDecision(state=after, events=(SharePartitionSaved(partition=after),))


def finish_burial(partition: SharePartition) -> ShareDecision[SharePartition]:
    """The dead letters are on disk: their records are archived."""
    burial = partition.burial
    assert burial is not None, "no burial was begun"
    after = _archived(partition, burial.spans)
    after = replace(after, burial=None, sequence=(burial.sequence + burial.count) % _SEQUENCES)
    return ShareDecision(state=after, events=(SharePartitionSaved(partition=after),))


def _archived(partition: SharePartition, spans: Collection[Span]) -> SharePartition:
    runs = [
        piece
        if number is None or piece.state is not RecordState.ARCHIVING
        else replace(piece, state=RecordState.ARCHIVED)
        for piece, number in pieces(partition.runs, sorted(spans))
    ]
    return advanced(partition, runs)
