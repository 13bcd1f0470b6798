"""How far all groups are behind, asked of the log.

The trend is kept in this process's memory: sampled every two seconds from the first
question on, for ten minutes, and gone with the process.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.client.groups import (
    UNKNOWN_TIME,
    committed_offsets,
    describe_group,
    group_description,
    list_groups,
    many_committed_offsets,
    member_counts,
    partition_lag,
    require_group,
    worst_seconds,
)
from headrace.client.topics import Bounds, Log, PartitionKey
from headrace.client.write import BATCHES_TOPIC
from headrace.console.ask.lag_history import SAMPLE_S, GroupLag, LagHistory
from headrace.console.ask.records import first_time_ms
from headrace.console.context import ConsoleContext
from headrace.console.push import Watch
from headrace.errors import HeadraceError

__all__ = ["described_group", "group_lags", "lag_watch"]

_MOST_TIMES = 200


@dataclass(slots=True)
class GroupLags:
    """Samples the lag of all groups; one at a time, from any thread."""

    context: ConsoleContext
    history: LagHistory = field(default_factory=LagHistory)
    _times: dict[tuple[PartitionKey, int], int | None] = field(default_factory=dict)

    def sample(self) -> dict[str, GroupLag]:
        """All groups as they are now, by name; also added to the history."""
        log = self.context.clients.log()
        listed = {each["group"]: each for each in list_groups(log)}
        offsets = {
            group: {each: offset for each, offset in own.items() if each[0] != BATCHES_TOPIC}
            for group, own in many_committed_offsets(log, listed).items()
        }  # what is committed there is no offset, but the number of a batch
        members = member_counts(log, listed)
        ends = _ends(log, offsets.values())
        self._times = self._oldest(offsets.values(), ends)
        now_ms = self.context.clock.now_ms()
        found = {
            group: self._lag(each, offsets[group], ends, members.get(group, 0), now_ms)
            for group, each in listed.items()
        }
        self.history.add(now_ms, found)
        return found

    def _lag(
        self,
        listed: Mapping[str, str],
        offsets: Mapping[PartitionKey, int],
        ends: Mapping[PartitionKey, int],
        members: int,
        now_ms: int,
    ) -> GroupLag:
        lags = [
            partition_lag(
                committed=offset,
                bounds=Bounds(start=0, end=ends[each]),
                oldest_unread_ms=self._times.get((each, offset), UNKNOWN_TIME),
                now_ms=now_ms,
            )
            for each, offset in offsets.items()
            if each in ends
        ]
        return GroupLag(
            group=listed["group"],
            state=listed["state"],
            type=listed["type"],
            members=members,
            lag_records=sum(lag.records or 0 for lag in lags) if lags else None,
            lag_seconds=worst_seconds(lags),
        )

    def _oldest(
        self, offsets: Iterable[Mapping[PartitionKey, int]], ends: Mapping[PartitionKey, int]
    ) -> dict[tuple[PartitionKey, int], int | None]:
        """When the first unread record of each lagging partition was written; known ones are kept."""
        wanted = {
            (each, offset)
            for own in offsets
            for each, offset in own.items()
            if each in ends and offset < ends[each]
        }
        found = {place: self._times[place] for place in wanted if place in self._times}
        for place in sorted(wanted - found.keys())[:_MOST_TIMES]:
            found[place] = _time_at(self.context, place, ends[place[0]])
        return found


def _time_at(context: ConsoleContext, place: tuple[PartitionKey, int], end: int) -> int | None:
    (topic, partition), offset = place
    try:
        with context.clients.fetcher() as fetcher:
            return first_time_ms(fetcher, topic, partition, offset, end)
    except HeadraceError:
        return UNKNOWN_TIME  # removed meanwhile, or not to be read: the count of records tells enough


def _ends(log: Log, offsets: Iterable[Mapping[PartitionKey, int]]) -> dict[PartitionKey, int]:
    """The ends of all partitions with offsets whose topic still exists: offsets may outlive it."""
    wanted = {each for own in offsets for each in own}
    topics = log.cluster().topics
    present = [(name, index) for name, index in wanted if name in topics and index in topics[name].partitions]
    return log.ends(present)


def described_group(context: ConsoleContext, group: str) -> dict[str, Any]:
    """One group with its members and its lag in every partition; raises RequestError if there is none."""
    log = context.clients.log()
    found, offsets = describe_group(log, group), committed_offsets(log, group)
    require_group(found, offsets)
    topics = log.cluster().topics
    present = [
        (topic, index)
        for topic, index in {*offsets, *found.owners}
        if topic in topics and index in topics[topic].partitions
    ]
    bounds = log.bounds(present)
    behind = {each: offsets[each] for each in present if each in offsets and offsets[each] < bounds[each].end}
    unread = {
        each: _time_at(context, (each, bounds[each].clamp(offset)), bounds[each].end)
        for each, offset in sorted(behind.items())[:_MOST_TIMES]
    }
    return group_description(
        found, offsets=offsets, bounds=bounds, unread_ms=unread, now_ms=context.clock.now_ms()
    )


Lags = dict[str, GroupLag]


class GroupLagWatch(Watch[Lags]):
    """The lag of all groups, sampled for as long as the console runs once somebody asked."""

    def __init__(self, context: ConsoleContext) -> None:
        self._lags = GroupLags(context)
        self._context = context
        self._sampler: asyncio.Task[None] | None = None
        super().__init__(self._sample, SAMPLE_S)

    @property
    def history(self) -> LagHistory:
        return self._lags.history

    async def newest(self) -> Lags:
        """The last sample, which is two seconds old at most; asks again where there is none."""
        if self._sampler is None:
            self._sampler = asyncio.create_task(self._keep_sampling())
            self._context.on_close(self._sampler.cancel)
        return self.value if self.value is not None and self.failure is None else await self._sample()

    async def _keep_sampling(self) -> None:
        async with self.following():
            await self._context.stopping.wait()

    async def _sample(self) -> Lags:
        return await self._context.workers.run(self._lags.sample)


def lag_watch(context: ConsoleContext) -> GroupLagWatch:
    """The one of this console."""
    found = context.watches.of(("groups",), lambda: GroupLagWatch(context))
    assert isinstance(found, GroupLagWatch)
    return found


async def group_lags(context: ConsoleContext) -> Lags:
    """How far all groups are behind, for other parts of the console."""
    return await lag_watch(context).newest()
