"""Classic groups: members elect a leader, the leader assigns, the broker keeps the generations.

Pure: the group, the request and the time come in, a `Decision` comes out.
"""

from headrace.groups.classic.expire import expire, next_deadline_ms, woken
from headrace.groups.classic.join import join
from headrace.groups.classic.membership import heartbeat, leave, sync, touch
from headrace.groups.classic.messages import (
    JoinReply,
    JoinRequest,
    LeaveRequest,
    MemberRequest,
    SyncReply,
    SyncRequest,
)
from headrace.groups.classic.state import ClassicGroup, ClassicMember, ClassicState, replay, subscribed_topics

__all__ = [
    "ClassicGroup",
    "ClassicMember",
    "ClassicState",
    "JoinReply",
    "JoinRequest",
    "LeaveRequest",
    "MemberRequest",
    "SyncReply",
    "SyncRequest",
    "expire",
    "heartbeat",
    "join",
    "leave",
    "next_deadline_ms",
    "replay",
    "subscribed_topics",
    "sync",
    "touch",
    "woken",
]
