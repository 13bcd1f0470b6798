"""What every view store guarantees, and how all of them read: `ViewStore`, `LedgeredStore`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from headrace.errors import RequestError
from headrace.views.batch import StagedChanges, ViewBatch
from headrace.views.changes import ViewChange
from headrace.views.ledger import Ledger, Reflected
from headrace.views.schema import ViewSchema
from headrace.views.selection import Choose, Condition, Order, Selection

__all__ = [
    "LedgeredStore",
    "Snapshot",
    "Stager",
    "StagingStore",
    "ViewStore",
    "require_since",
    "require_view",
]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Rows of a view and what they reflect, read at one point in time."""

    rows: pa.Table
    reflected: Reflected


class ViewStore(Protocol):
    """Keeps views: applies each batch exactly once, and shows whole batches only.

    Rows, ledger, counters and changes of a batch are written atomically: after a crash all of
    them are there or none. Methods may be called from any thread. A view is written by one
    query at a time; readers may be anywhere.
    """

    def prepare(self, schema: ViewSchema) -> None:
        """Creates the view if it is missing; raises RequestError if it has other columns or another key."""

    def begin(
        self, view: str, query_id: str, *, schema: ViewSchema | None = None, first_batch: int = 0
    ) -> Reflected:
        """Makes `query_id` the view's owner, and returns what the view reflects.

        The same query continues where it was. A new one rebuilds the view, with `schema`
        if its columns change: its first batch, which must be `first_batch`, replaces all
        rows as it is written; until then readers see the old ones. Any other query is
        fenced from now on.
        """

    def apply(self, view: str, batch: ViewBatch) -> bool:
        """Writes a batch durably; False, without any effect, if it was written before.

        Raises FencedError if another query owns the view, RequestError if a batch is
        missing in between, RetriableError if the store is busy or unreachable.
        """

    def read(
        self,
        view: str,
        *,
        where: Iterable[Condition] = (),
        order: Iterable[Order] = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> pa.Table:
        """Rows, in the given order and then by key."""

    def snapshot(
        self,
        view: str,
        *,
        where: Iterable[Condition] = (),
        order: Iterable[Order] = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> Snapshot:
        """As `read`, together with what exactly these rows reflect."""

    def reflected(self, view: str) -> Reflected:
        """The batch and offsets that the view reflects now."""

    def changes(self, view: str, since: int = 0, limit: int = 1_000) -> list[ViewChange]:
        """Changes after the sequence number `since`, oldest first.

        Raises RequestError when some of them are no longer kept, or the view was
        rebuilt: read the view again, then continue from `last_sequence`.
        """

    def last_sequence(self, view: str) -> int:
        """The sequence number of the newest change."""

    def views(self) -> list[str]:
        """The names of the views in this store."""

    def schema(self, view: str) -> ViewSchema:
        """A view's key and columns; raises RequestError if there is none of that name."""

    def drop(self, view: str) -> None:
        """Removes a view and everything about it; nothing happens if there is none."""

    def close(self) -> None:
        """Closes files and connections; harmless when repeated."""


class Stager(Protocol):
    """Writes changes of one view from another process, out of readers' sight; plain data, sent there."""

    def stage(self, changes: pa.Table, *, batch_id: int, distinct: bool) -> StagedChanges:
        """Writes a part of a batch's changes durably enough for the batch's `apply` to take them up.

        The arguments are those of `ViewBatch`. What no `apply` takes up is removed in time. Raises
        RetriableError if the store is unreachable, ConfigError if it cannot be reached from here.
        """


class StagingStore:
    """A store to which the tasks of a batch bring their parts, so that `apply` moves no rows of its own."""

    def stager(self, schema: ViewSchema) -> Stager:
        """What writes parts of a view that has been prepared, and has this schema from its next batch on."""
        raise NotImplementedError

    def work_by(self, run: Callable[[Callable[[], Any]], Any]) -> None:
        """Has `run` call what the store itself would do with many rows, in another process."""


class LedgeredStore:
    """The reading part of every ViewStore; subclasses supply `_ledger` and `_snapshot`."""

    def _ledger(self, view: str) -> Ledger:
        """The view's current ledger; raises RequestError if there is no such view."""
        raise NotImplementedError

    def _snapshot(self, view: str, choose: Choose) -> Snapshot:
        """The rows that `choose` selects, and what they reflect, at one point in time."""
        raise NotImplementedError

    def snapshot(
        self,
        view: str,
        *,
        where: Iterable[Condition] = (),
        order: Iterable[Order] = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> Snapshot:
        return self._snapshot(view, lambda schema: Selection.of(schema, where, order, limit, offset))

    def read(
        self,
        view: str,
        *,
        where: Iterable[Condition] = (),
        order: Iterable[Order] = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> pa.Table:
        return self.snapshot(view, where=where, order=order, limit=limit, offset=offset).rows

    def reflected(self, view: str) -> Reflected:
        return self._ledger(view).reflected

    def last_sequence(self, view: str) -> int:
        return self._ledger(view).sequence

    def schema(self, view: str) -> ViewSchema:
        return self._ledger(view).schema


def require_view(ledger: Ledger | None, view: str, known: Iterable[str]) -> Ledger:
    """The ledger; raises RequestError naming the existing views if there is none."""
    if ledger is None:
        names = ", ".join(sorted(known)) or "none"
        raise RequestError(f"there is no view {view!r} here; the views are: {names}")
    return ledger


def require_since(view: str, since: int, oldest: int | None, newest: int) -> None:
    """Raises RequestError when changes after `since` are missing; `oldest` is the first one kept."""
    first = newest + 1 if oldest is None else oldest
    if since > newest or since + 1 < first:
        raise RequestError(
            f"view {view!r}: changes after {since} are not all kept (there are {first} to {newest}); "
            "read the view again and continue from its last sequence number"
        )
