"""Consumer groups: members, committed offsets, lag."""

from headrace.client.groups.describe import (
    committed_offsets,
    describe_group,
    list_groups,
    many_committed_offsets,
    member_counts,
    require_group,
)
from headrace.client.groups.lag import UNKNOWN_TIME, partition_lag, worst_seconds
from headrace.client.groups.summaries import group_description

__all__ = [
    "UNKNOWN_TIME",
    "committed_offsets",
    "describe_group",
    "group_description",
    "list_groups",
    "many_committed_offsets",
    "member_counts",
    "partition_lag",
    "require_group",
    "worst_seconds",
]
