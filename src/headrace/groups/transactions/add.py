"""What a transaction touches: partitions and groups, told beforehand or with the data itself."""

from collections.abc import Iterable
from dataclasses import replace

from headrace.groups.codes import Code
from headrace.groups.events import Partitions, TopicPartition
from headrace.groups.transactions.state import Claim, EndVerdict, Ongoing, Transactional, refusal

__all__ = ["add", "missing"]


def add(
    producer: Transactional,
    claim: Claim,
    *,
    partitions: Iterable[TopicPartition] = (),
    groups: Iterable[str] = (),
    now_ms: int,
) -> EndVerdict:
    """Puts them into the transaction, which begins with the first; nothing of it is persisted.

    Waits while the last transaction is being carried out if after a crash its
    records could not be told from this one's.
    """
    error = refusal(producer, claim)
    if error:
        return EndVerdict(producer=producer, error=error)
    unfinished = producer.unfinished
    if unfinished is not None and unfinished.claim == claim and not unfinished.separable:
        return EndVerdict(producer=producer, error=None)
    ongoing = producer.ongoing or Ongoing(started_ms=now_ms)
    ongoing = replace(
        ongoing, partitions=ongoing.partitions.union(partitions), groups=ongoing.groups.union(groups)
    )
    return EndVerdict(producer=replace(producer, ongoing=ongoing))


def missing(
    producer: Transactional,
    claim: Claim,
    *,
    partitions: Partitions = frozenset(),
    groups: frozenset[str] = frozenset(),
) -> Code:
    """Why data may not come before it was told of, or NONE.

    Right after a start of the broker it may: the connections on which something late
    could come are gone, and what was added before is not known any more.
    """
    error = refusal(producer, claim)
    if error:
        return error
    unfinished = producer.unfinished
    if producer.recovered and (unfinished is None or unfinished.separable):
        return Code.NONE
    ongoing = producer.ongoing
    added = ongoing is not None and partitions <= ongoing.partitions and groups <= ongoing.groups
    return Code.NONE if added else Code.INVALID_TXN_STATE
