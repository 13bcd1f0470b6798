"""How far all groups are behind, asked of the log. Blocks: for the console's threads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.client.group_data import described
from headrace.client.group_questions import (
    committed_offsets,
    describe_group,
    list_groups,
    many_committed_offsets,
    member_counts,
    require_group,
)
from headrace.client.lag import UNKNOWN_TIME, partition_lag, worst_seconds
from headrace.client.places import Bounds
from headrace.client.questions import Log, Partition
from headrace.console.asking import log_of
from headrace.console.lag_history import GroupLag, LagHistory
from headrace.console.reading import first_time_ms
from headrace.console.surroundings import Surroundings
from headrace.errors import HeadraceError
from headrace.views.numbered import BATCHES_TOPIC

__all__ = ["GroupLags", "described_group"]

_MOST_TIMES = 200


@dataclass(slots=True)
class GroupLags:
    """Samples the lag of all groups; one at a time, from any thread."""

    here: Surroundings
    history: LagHistory = field(default_factory=LagHistory)
    _times: dict[tuple[Partition, int], int | None] = field(default_factory=dict)

    def sample(self) -> dict[str, GroupLag]:
        """All groups as they are now, by name; also added to the history."""
        log = log_of(self.here)
        listed = {each["group"]: each for each in list_groups(log)}
        offsets = {
            group: {each: offset for each, offset in own.items() if each[0] != BATCHES_TOPIC}
            for group, own in many_committed_offsets(log, listed).items()
        }  # what is committed there is no offset, but the number of a batch
        members = member_counts(log, listed)
        ends = _ends(log, offsets.values())
        self._times = self._oldest(offsets.values(), ends)
        now_ms = self.here.clock.now_ms()
        found = {
            group: self._lag(each, offsets[group], ends, members.get(group, 0), now_ms)
            for group, each in listed.items()
        }
        self.history.add(now_ms, found)
        return found

    def _lag(
        self,
        listed: Mapping[str, str],
        offsets: Mapping[Partition, int],
        ends: Mapping[Partition, int],
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
        self, offsets: Iterable[Mapping[Partition, int]], ends: Mapping[Partition, int]
    ) -> dict[tuple[Partition, int], int | None]:
        """When the first unread record of each lagging partition was written; known ones are kept."""
        wanted = {
            (each, offset)
            for own in offsets
            for each, offset in own.items()
            if each in ends and offset < ends[each]
        }
        found = {place: self._times[place] for place in wanted if place in self._times}
        for place in sorted(wanted - found.keys())[:_MOST_TIMES]:
            found[place] = _time_at(self.here, place, ends[place[0]])
        return found


def _time_at(here: Surroundings, place: tuple[Partition, int], end: int) -> int | None:
    (topic, partition), offset = place
    try:
        with here.fetcher() as fetcher:
            return first_time_ms(fetcher, topic, partition, offset, end)
    except HeadraceError:
        return UNKNOWN_TIME  # removed meanwhile, or not to be read: the count of records tells enough


def _ends(log: Log, offsets: Iterable[Mapping[Partition, int]]) -> dict[Partition, int]:
    """The ends of all partitions with offsets whose topic still exists: offsets may outlive it."""
    wanted = {each for own in offsets for each in own}
    topics = log.cluster().topics
    present = [(name, index) for name, index in wanted if name in topics and index in topics[name].partitions]
    return log.ends(present)


def described_group(here: Surroundings, group: str) -> dict[str, Any]:
    """One group with its members and its lag in every partition; raises RequestError if there is none."""
    log = log_of(here)
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
        each: _time_at(here, (each, bounds[each].clamp(offset)), bounds[each].end)
        for each, offset in sorted(behind.items())[:_MOST_TIMES]
    }
    return described(found, offsets=offsets, bounds=bounds, unread_ms=unread, now_ms=here.clock.now_ms())
