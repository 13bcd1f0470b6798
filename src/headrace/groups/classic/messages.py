"""Requests to a classic group and the replies to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.groups.codes import Code

__all__ = ["JoinReply", "JoinRequest", "LeaveRequest", "MemberRequest", "SyncReply", "SyncRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRequest:
    """Who asks: a heartbeat is no more than this."""

    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """`new_member_id` is the id to give out if the member has none; `ticket` names the parked request."""

    ticket: int
    member_id: str
    new_member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    knows_member_id_required: bool = True
    knows_skip_assignment: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """`members` (id, instance id, metadata) are for the leader, who assigns unless `skip_assignment`."""

    error: Code = Code.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """`assignments` comes from the leader; `protocol_type` and `protocol_name` are None where not sent."""

    ticket: int
    member: MemberRequest
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReply:
    """What the leader assigned to the member, as it wrote it."""

    error: Code = Code.NONE
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    """A member by its id, by its instance id (then `member_id` may be empty), or by both."""

    member_id: str
    instance_id: str | None = None
