"""What every store of views promises."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from headrace.errors import RequestError
from headrace.views.batch import ViewBatch
from headrace.views.ledger import Ledger, Reflected
from headrace.views.schema import ViewSchema
from headrace.views.selecting import Condition, Order

__all__ = ["Change", "Snapshot", "ViewStore", "require_since", "require_view"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Rows of a view and what they reflect, taken at one moment."""

    rows: pa.Table
    reflected: Reflected


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a row, its parts in JSON's types (`headrace.views.json_values` has the rules)."""

    sequence: int
    batch_id: int
    kind: int
    key: dict[str, Any]
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class ViewStore(Protocol):
    """Keeps views: applies each batch once, and shows whole batches only.

    Rows, ledger, books and changes of a batch are written in one step: after a crash
    all of them are there or none. Methods may be called from any thread. A view is
    written by one query at a time; readers may be anywhere.
    """

    def prepare(self, schema: ViewSchema) -> None:
        """Makes the view if it is not there; raises RequestError if it is, with other columns or key."""

    def begin(
        self, view: str, query_id: str, *, schema: ViewSchema | None = None, first_batch: int = 0
    ) -> Reflected:
        """Makes `query_id` the view's owner, and says what the view reflects.

        The same query goes on where it was. A new one builds the view anew, with
        `schema` if its columns change: its first batch, which must be `first_batch`,
        replaces all rows in the step that writes it; until then readers see the old
        ones. Any other query is fenced from now on.
        """

    def apply(self, view: str, batch: ViewBatch) -> bool:
        """Writes a batch durably; False if it had been written before, and then nothing changes.

        Raises FencedError if another query owns the view, RequestError if a batch is
        missing in between, RetriableError if the store is busy or away.
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
        """Rows, in the order given and then by key."""

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
        """The batch and offsets that the view shows now."""

    def changes(self, view: str, since: int = 0, limit: int = 1_000) -> list[Change]:
        """Changes after the sequence number `since`, oldest first.

        Raises RequestError when some of them are no longer kept, or the view was
        rebuilt: read the view again, then go on from `last_sequence`.
        """

    def last_sequence(self, view: str) -> int:
        """The number of the newest change."""

    def views(self) -> list[str]:
        """Names of the views kept here."""

    def schema(self, view: str) -> ViewSchema:
        """A view's key and columns; raises RequestError if there is none of that name."""

    def drop(self, view: str) -> None:
        """Removes a view with everything about it; nothing happens if there is none."""

    def close(self) -> None:
        """Gives back files and connections; harmless when repeated."""


def require_view(ledger: Ledger | None, view: str, known: Iterable[str]) -> Ledger:
    """The ledger, or RequestError naming the views that there are."""
    if ledger is None:
        names = ", ".join(sorted(known)) or "none"
        raise RequestError(f"there is no view {view!r} here; there is: {names}")
    return ledger


def require_since(view: str, since: int, oldest: int | None, newest: int) -> None:
    """Raises RequestError when changes after `since` are missing; `oldest` is the first one kept."""
    first = newest + 1 if oldest is None else oldest
    if since > newest or since + 1 < first:
        raise RequestError(
            f"view {view!r}: changes after {since} are not all kept (there are {first} to {newest}); "
            "read the view again and go on from its last sequence number"
        )
