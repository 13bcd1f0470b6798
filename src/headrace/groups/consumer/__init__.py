"""Server-side groups (KIP-848): the broker assigns, members reconcile step by step.

Pure: the group, the request, the topics and the time come in, a `Decision` comes out.
"""

from headrace.groups.consumer.assignors import ASSIGNORS
from headrace.groups.consumer.heartbeat import heartbeat, preferred_assignor
from headrace.groups.consumer.leaving import dismiss, expire, next_deadline_ms, touch, woken
from headrace.groups.consumer.messages import ConsumerHeartbeat, ConsumerReply
from headrace.groups.consumer.state import (
    ConsumerGroup,
    ConsumerMember,
    ConsumerState,
    KnownTopics,
    MemberState,
    replay,
)
from headrace.groups.consumer.topic_regex import TopicRegex

__all__ = [
    "ASSIGNORS",
    "ConsumerGroup",
    "ConsumerHeartbeat",
    "ConsumerMember",
    "ConsumerReply",
    "ConsumerState",
    "KnownTopics",
    "MemberState",
    "TopicRegex",
    "dismiss",
    "expire",
    "heartbeat",
    "next_deadline_ms",
    "preferred_assignor",
    "replay",
    "touch",
    "woken",
]
