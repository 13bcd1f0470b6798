"""After a restart: whose are the transactions that partitions and groups still have open?

Open ones of a decision that was not carried out are ended as it says. Ones of a
producer's current epoch are its ongoing transaction, which goes on: the producer may
have been told that its records are safe. All others belong to nobody and are
aborted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.groups.events import TopicPartition
from headrace.groups.transactions.state import Claim, Ongoing, Transactional

__all__ = ["Open", "Recovered", "Stray", "recover"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Something of a producer's transaction in a partition, from `first_offset` on, or in a group."""

    claim: Claim
    partition: TopicPartition | None = None
    first_offset: int = 0
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """To be aborted with this epoch, since nobody will end it."""

    opened: Open
    marker_epoch: int


@dataclass(slots=True)
class Recovered:
    """Producers by transactional id, and what belongs to none of them."""

    producers: dict[str, Transactional] = field(default_factory=dict)
    strays: list[Stray] = field(default_factory=list)


def recover(
    producers: Mapping[str, Transactional], opened: Iterable[Open], *, restarted: bool, now_ms: int
) -> Recovered:
    """Gives every open transaction to the one it belongs to.

    `restarted`: all connections are new, so nothing sent before can still come.
    Time-outs begin again.
    """
    found = Recovered()
    owners: dict[int, str] = {}
    for name, producer in producers.items():
        found.producers[name] = _awake(producer, restarted)
        owners[producer.claim.producer_id] = name
        if producer.unfinished is not None:
            owners[producer.unfinished.claim.producer_id] = name
    for each in opened:
        owner = owners.get(each.claim.producer_id)
        if owner is None:
            found.strays.append(Stray(opened=each, marker_epoch=each.claim.epoch))
        else:
            _assign(found, owner, each, now_ms)
    return found


def _awake(producer: Transactional, restarted: bool) -> Transactional:
    """A decision has yet to tell the partitions in which it is open; groups are told again."""
    decided = producer.unfinished
    if decided is not None:
        decided = replace(decided, partitions=frozenset())
    return replace(producer, decided=decided or producer.decided, recovered=restarted)


def _assign(found: Recovered, owner: str, each: Open, now_ms: int) -> None:
    producer = found.producers[owner]
    decided = producer.unfinished
    partitions = frozenset([each.partition] if each.partition is not None else [])
    groups = frozenset([each.group] if each.group is not None else [])
    if decided is not None and decided.includes(each.claim, each.partition, each.first_offset):
        open_ = replace(decided, partitions=decided.partitions | partitions, groups=decided.groups | groups)
        found.producers[owner] = replace(producer, decided=open_)
    elif each.claim == producer.claim:
        ongoing = producer.ongoing or Ongoing(started_ms=now_ms)
        more = replace(ongoing, partitions=ongoing.partitions | partitions, groups=ongoing.groups | groups)
        found.producers[owner] = replace(producer, ongoing=more)
    else:
        newest = producer.claim.epoch if producer.claim.producer_id == each.claim.producer_id else 0
        found.strays.append(Stray(opened=each, marker_epoch=max(each.claim.epoch, newest)))
