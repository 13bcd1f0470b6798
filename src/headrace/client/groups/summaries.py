"""Groups as plain data, for the command line and the console. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.groups.describe import GroupDescription, Member
from headrace.client.groups.lag import UNKNOWN_TIME, partition_lag, worst_seconds
from headrace.client.topics import Bounds, PartitionKey

__all__ = ["group_description"]

Data = dict[str, Any]


def group_description(
    group: GroupDescription,
    *,
    offsets: Mapping[PartitionKey, int],
    bounds: Mapping[PartitionKey, Bounds],
    unread_ms: Mapping[PartitionKey, int | None],
    now_ms: int,
    events: Iterable[Data] = (),
) -> Data:
    """A group with its lag; a partition whose topic is gone has neither bounds nor lag."""
    rows, lags = [], []
    for each in sorted({*offsets, *group.owners}):
        limits, owner = bounds.get(each), group.owners.get(each)
        lag = None
        if limits is not None:
            lag = partition_lag(
                committed=offsets.get(each),
                bounds=limits,
                oldest_unread_ms=unread_ms.get(each, UNKNOWN_TIME),
                now_ms=now_ms,
            )
            lags.append(lag)
        rows.append(
            {
                "topic": each[0],
                "partition": each[1],
                "committed": offsets.get(each),
                "log_start": limits.start if limits else None,
                "log_end": limits.end if limits else None,
                "lag_records": lag.records if lag else None,
                "lag_seconds": lag.seconds if lag else None,
                "lost_records": lag.lost_records if lag else None,
                "member_id": owner.member_id if owner else None,
            }
        )
    return {
        "group": group.group,
        "state": group.state,
        "type": group.type,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator or None,
        "lag_records": sum(lag.records or 0 for lag in lags),
        "lag_seconds": worst_seconds(lags),
        "members": [_member(member) for member in group.members],
        "partitions": rows,
        "events": list(events),
    }


def _member(member: Member) -> Data:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in member.partitions],
    }
