"""The heartbeat of a server-side group, which is all its members ever send, and its reply."""

from dataclasses import dataclass

from headrace.groups.codes import Code
from headrace.groups.events import Partitions

__all__ = ["JOIN", "LEAVE", "LEAVE_FOR_NOW", "ConsumerHeartbeat", "ConsumerReply"]

JOIN = 0
LEAVE = -1
LEAVE_FOR_NOW = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat:
    """None (or -1 for the time-out) means "as I said before". `owned` is what the member still holds."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    user: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    new_member_id: str | None = None
    """An id to give out if the member has none; None where the protocol's version has members bring one."""

    @property
    def is_full(self) -> bool:
        """The member says everything again, because it is not sure what we heard."""
        subscribed = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != -1 and subscribed and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerReply:
    """`assignment` is None where it is what the member already knows."""

    error: Code = Code.NONE
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    assignment: Partitions | None = None
