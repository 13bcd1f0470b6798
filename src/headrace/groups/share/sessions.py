"""Share sessions: what a member reads, kept between its requests, and that it misses none of our answers.

A session lives in memory, with its connection. Every request carries the epoch
that the last one leads to; another one than that means that an answer was lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.groups.codes import Code
from headrace.groups.events import TopicPartition

__all__ = ["FINAL", "INITIAL", "Session", "Sessions"]

INITIAL, FINAL = 0, -1
_LAST_EPOCH = 2**31 - 1


@dataclass(slots=True)
class Session:
    """One member's session; `epoch` is what its next request must say."""

    group_id: str
    member_id: str
    connection: int
    epoch: int = 1
    partitions: dict[TopicPartition, None] = field(default_factory=dict)

    def advance(self) -> None:
        """After the largest it goes on with 1: 0 is the first request of a session only."""
        self.epoch = self.epoch + 1 if self.epoch < _LAST_EPOCH else 1

    def change(self, added: Iterable[TopicPartition], forgotten: Iterable[TopicPartition]) -> None:
        """The partitions of the request come in addition to those known; the order is of arrival."""
        for each in added:
            self.partitions[each] = None
        for each in forgotten:
            self.partitions.pop(each, None)

    def rotate(self) -> list[TopicPartition]:
        """The partitions, another one first each time, so that none is always the last."""
        if not self.partitions:
            return []
        first = next(iter(self.partitions))
        order = list(self.partitions)
        del self.partitions[first]
        self.partitions[first] = None
        return order


class Sessions:
    """Every session, by group and member, and by connection."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[tuple[str, str], Session] = {}
        self._by_connection: dict[int, set[tuple[str, str]]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group_id: str, member_id: str, connection: int) -> Session | Code:
        """A new session, in place of an old one of the member."""
        key = (group_id, member_id)
        self._drop(key)
        if len(self._sessions) >= self._most:
            return Code.SHARE_SESSION_LIMIT_REACHED
        session = Session(group_id, member_id, connection)
        self._sessions[key] = session
        self._by_connection.setdefault(connection, set()).add(key)
        return session

    def find(self, group_id: str, member_id: str, epoch: int) -> Session | Code:
        """The session that a request with this epoch belongs to, or why there is none."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            return Code.SHARE_SESSION_NOT_FOUND
        if epoch not in (session.epoch, FINAL):
            return Code.INVALID_SHARE_SESSION_EPOCH
        return session

    def close(self, session: Session) -> None:
        key = (session.group_id, session.member_id)
        if self._sessions.get(key) is session:
            self._drop(key)

    def disconnected(self, connection: int) -> list[Session]:
        """Ends the sessions of a connection that is gone; which they were."""
        keys = self._by_connection.get(connection, set()).copy()
        found = [self._sessions[key] for key in keys]
        for key in keys:
            self._drop(key)
        return found

    def _drop(self, key: tuple[str, str]) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            keys = self._by_connection[session.connection]
            keys.discard(key)
            if not keys:
                del self._by_connection[session.connection]
