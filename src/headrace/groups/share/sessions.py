"""Share sessions: what a member reads, kept between its requests, and that it misses none of our answers.

A session lives in memory, with its connection, and belongs to the user who opened it there:
on another connection, or for another user, there is no such session. Every request carries
the epoch that the last one leads to; another one than that means that an answer was lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.groups.codes import Code
from headrace.groups.events import TopicPartition

__all__ = ["FINAL", "INITIAL", "Sessions", "ShareSession"]

INITIAL, FINAL = 0, -1
_LAST_EPOCH = 2**31 - 1


@dataclass(slots=True)
class ShareSession:
    """One member's session; `epoch` is what its next request must say. No user: nobody had to log in."""

    group_id: str
    member_id: str
    connection: int
    user: str | None = None
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
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_connection: dict[int, set[tuple[str, str]]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, group_id: str, member_id: str, connection: int, user: str | None = None
    ) -> ShareSession | Code:
        """A new session, in place of an old one of the member, which must be the same user's."""
        key = (group_id, member_id)
        former = self._sessions.get(key)
        if former is not None and former.user != user:
            return Code.GROUP_AUTHORIZATION_FAILED
        self._drop(key)
        if len(self._sessions) >= self._most:
            return Code.SHARE_SESSION_LIMIT_REACHED
        session = ShareSession(group_id, member_id, connection, user)
        self._sessions[key] = session
        self._by_connection.setdefault(connection, set()).add(key)
        return session

    def find(
        self, group_id: str, member_id: str, epoch: int, connection: int, user: str | None = None
    ) -> ShareSession | Code:
        """The session that a request with this epoch belongs to, or why there is none."""
        session = self._sessions.get((group_id, member_id))
        if session is None or (session.connection, session.user) != (connection, user):
            return Code.SHARE_SESSION_NOT_FOUND
        if epoch not in (session.epoch, FINAL):
            return Code.INVALID_SHARE_SESSION_EPOCH
        return session

    def is_open(self, session: ShareSession) -> bool:
        """Whether it has neither ended nor been replaced by another of its member."""
        return self._sessions.get((session.group_id, session.member_id)) is session

    def close(self, session: ShareSession) -> None:
        if self.is_open(session):
            self._drop((session.group_id, session.member_id))

    def disconnected(self, connection: int) -> list[ShareSession]:
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
