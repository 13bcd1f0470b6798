"""Between the micro-batches of a query: where it can be brought to rest.

A batch that was stopped half-way is repeated by whoever starts the query next, divided among buckets
and tasks as it was. Behind a batch that is done nothing is left to repeat, so state can be taken
elsewhere, and be divided anew.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import HeadraceError

__all__ = ["AtRestError", "BatchGate"]


class AtRestError(HeadraceError):
    """The query was brought to rest: this batch is not begun."""


class BatchGate:
    """That of one query, through all of its restarts.

    `last_begun` is the batch that was last let through, whatever became of it; None before the first.
    """

    def __init__(self) -> None:
        self.last_begun: int | None = None
        self._within = threading.Lock()
        self._is_closed = threading.Event()

    @contextmanager
    def batch(self, number: int) -> Iterator[None]:
        """Within, a batch is carried out; raises AtRestError once the gate is closed."""
        with self._within:
            if self._is_closed.is_set():
                raise AtRestError(f"batch {number} is not begun: the query was brought to rest")
            self.last_begun = number
            yield

    def close(self) -> None:
        """No other batch is let through, for good; the one that is under way goes on."""
        self._is_closed.set()

    def is_passed(self) -> bool:
        """Whether no batch is under way."""
        return not self._within.locked()
