"""What a target promises: rows and the position that they reflect change together, by one owner at a time."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from headrace.derived.changes import Row
from headrace.derived.pace import Pace
from headrace.derived.state import FollowState
from headrace.errors import RetriableError

__all__ = ["Refuse", "StateLost", "Target"]

Refuse = Callable[[bytes, str], None]


class StateLost(RetriableError):  # noqa: N818 - what has happened, not what is wrong
    """The target no longer has the state that the follower wrote: it was emptied or replaced."""


class Target(Protocol):
    """The rows of one follower. For one thread; opened when first used, again after `close`.

    What the network or a restart does is a RetriableError.
    """

    @property
    def has_snapshots(self) -> bool:
        """Whether `reading` shows one state while others write."""

    @property
    def pace(self) -> Pace:
        """How often it takes a transaction, and how large that may be."""

    def state(self) -> FollowState | None:
        """The state that it has, or None."""

    def is_empty(self) -> bool:
        """Whether it has no rows."""

    def claim(self, state: FollowState) -> None:
        """Writes the state, no matter who owned it: from now on only `state.owner` may write."""

    def apply(
        self, upserts: Mapping[bytes, Row], deletes: Collection[bytes], state: FollowState, refuse: Refuse
    ) -> None:
        """Writes rows and state in one transaction, or neither.

        Rows that it cannot hold are reported to `refuse`, with the reason, before the transaction
        ends, and left as they were. Raises FencedError if the target is claimed by another
        owner, StateLost if it has no state.
        """

    def get(self, keys: Collection[bytes]) -> dict[bytes, Row]:
        """The rows of these keys, as far as there are any."""

    def identity(self, key: bytes) -> bytes:
        """What a row is known by in the target, where that is not the record's key itself."""

    def stored(self, row: Row) -> Row:
        """The row as the target gives it back."""

    def rows(self) -> Iterator[tuple[bytes, Row]]:
        """Every row by its identity, in no order."""

    def reading(self) -> AbstractContextManager[FollowState | None]:
        """The state; with `has_snapshots`, `rows` are of that state within."""

    def read_together(self, identities: Collection[bytes]) -> tuple[FollowState | None, dict[bytes, Row]]:
        """The state, and rows of that state by identity."""

    def delete_identities(self, identities: Collection[bytes], state: FollowState) -> None:
        """Deletes rows that no record's key leads to; otherwise as `apply`."""

    def close(self) -> None:
        """Disconnects; harmless when repeated."""
