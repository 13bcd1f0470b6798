"""Server-side assignors: pure functions from subscriptions to a target assignment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from headrace.groups.events import Partitions, TopicPartition

__all__ = ["ASSIGNORS", "Subscriber", "assign_range", "assign_uniform"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as assignors see it; `order` keeps a static member's place over its incarnations."""

    order: str
    topics: frozenset[UUID]
    had: Partitions


Subscribers: TypeAlias = Mapping[str, Subscriber]
Assignment: TypeAlias = dict[str, Partitions]


def assign_range(subscribers: Subscribers, counts: Mapping[UUID, int]) -> Assignment:
    """Per topic, neighbouring partitions to neighbouring members.

    Topics of equal partition counts and subscribers are split alike, which joins rely on.
    """
    shares: dict[str, set[TopicPartition]] = {key: set() for key in subscribers}
    ordered = sorted(subscribers, key=lambda key: (subscribers[key].order, key))
    for topic, count in counts.items():
        takers = [key for key in ordered if topic in subscribers[key].topics]
        if not takers:
            continue
        each, extra = divmod(count, len(takers))
        start = 0
        for rank, key in enumerate(takers):
            end = start + each + (rank < extra)
            shares[key].update((topic, partition) for partition in range(start, end))
            start = end
    return {key: frozenset(share) for key, share in shares.items()}


def assign_uniform(subscribers: Subscribers, counts: Mapping[UUID, int]) -> Assignment:
    """Evenly, and moving as little as possible from what members had.

    With equal subscriptions loads differ by at most one; otherwise no single move of a
    partition could make the loads of two members more even.
    """
    shares = _kept(subscribers, counts)
    subscriptions = {subscriber.topics for subscriber in subscribers.values()}
    ordered = sorted(subscribers, key=lambda key: (subscribers[key].order, key))
    if len(subscriptions) == 1:
        _level(shares, ordered, sum(counts.get(topic, 0) for topic in next(iter(subscriptions))))
    free = _free(subscribers, counts, shares)
    for partition in free:
        takers = [key for key in ordered if partition[0] in subscribers[key].topics]
        shares[min(takers, key=lambda key: len(shares[key]))].add(partition)
    if len(subscriptions) > 1:
        _balance(shares, ordered, subscribers)
    return {key: frozenset(share) for key, share in shares.items()}


def _kept(subscribers: Subscribers, counts: Mapping[UUID, int]) -> dict[str, set[TopicPartition]]:
    """What members had and may keep; if two claim one partition, the first has it."""
    seen: set[TopicPartition] = set()
    shares: dict[str, set[TopicPartition]] = {}
    for key, subscriber in subscribers.items():
        valid = {(t, p) for t, p in subscriber.had if t in subscriber.topics and p < counts.get(t, 0)}
        shares[key] = valid - seen
        seen |= valid
    return shares


def _level(shares: dict[str, set[TopicPartition]], ordered: Sequence[str], total: int) -> None:
    """Take from each member what exceeds its even share; those who have most get the odd ones."""
    each, extra = divmod(total, len(ordered))
    for rank, key in enumerate(sorted(ordered, key=lambda key: -len(shares[key]))):
        quota = each + (rank < extra)
        surplus = len(shares[key]) - quota
        if surplus > 0:
            shares[key] -= set(sorted(shares[key])[-surplus:])


def _free(
    subscribers: Subscribers, counts: Mapping[UUID, int], shares: Mapping[str, set[TopicPartition]]
) -> list[TopicPartition]:
    """Partitions nobody has, those that fewest members could take first."""
    demand = {topic: sum(topic in s.topics for s in subscribers.values()) for topic in counts}
    taken = set[TopicPartition]().union(*shares.values())
    everything = ((t, p) for t, count in counts.items() if demand[t] for p in range(count))
    return sorted((tp for tp in everything if tp not in taken), key=lambda tp: (demand[tp[0]], tp))


def _balance(
    shares: dict[str, set[TopicPartition]], ordered: Sequence[str], subscribers: Subscribers
) -> None:
    """Move partitions one at a time from a member to one with at least two fewer, until none is left.

    Ends: each move makes the sum of squared loads smaller.
    """
    moved = True
    while moved:
        moved = False
        for giver in sorted(ordered, key=lambda key: -len(shares[key])):
            for partition in sorted(shares[giver]):
                takers = [key for key in ordered if partition[0] in subscribers[key].topics]
                taker = min(takers, key=lambda key: len(shares[key]))
                if len(shares[taker]) + 1 < len(shares[giver]):
                    shares[giver].remove(partition)
                    shares[taker].add(partition)
                    moved = True


ASSIGNORS: Mapping[str, Callable[[Subscribers, Mapping[UUID, int]], Assignment]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
"""By name; the first is the default."""
