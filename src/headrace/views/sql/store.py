"""Views in a database: one transaction per batch writes rows, ledger and changes.

What all databases have in common is here; an `SqlSession` is what one of them does inside a
transaction.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from headrace.crash_points import reached
from headrace.errors import CorruptionError
from headrace.views.batch import NetChanges, StagedChanges, ViewBatch, net_changes
from headrace.views.changes import ViewChange, kept_changes
from headrace.views.ledger import Ledger, Reflected
from headrace.views.schema import ViewSchema
from headrace.views.selection import Choose, Selection
from headrace.views.store import LedgeredStore, Snapshot, require_since, require_view

__all__ = ["SqlSession", "SqlStore"]


class SqlSession(Protocol):
    """One transaction on one connection."""

    def ledger(self, view: str, *, lock: bool = False) -> Ledger | None:
        """The view's ledger; `lock` makes other writers of the view wait until the end."""

    def views(self) -> list[str]: ...

    def write_ledger(self, ledger: Ledger) -> None: ...

    def create(self, schema: ViewSchema) -> None:
        """Creates the view's table; raises RequestError if the name is taken."""

    def clear(self, old: ViewSchema, new: ViewSchema) -> None:
        """Removes all rows and changes, and gives the table its new columns."""

    def forget(self, schema: ViewSchema) -> None:
        """Removes the view's table, ledger and changes."""

    def write_rows(self, schema: ViewSchema, net: NetChanges) -> None: ...

    def write_changes(self, view: str, changes: list[ViewChange], drop_up_to: int) -> None:
        """Adds changes, and drops those with numbers up to `drop_up_to`."""

    def take_up(
        self, schema: ViewSchema, batch_id: int, staged: Sequence[StagedChanges], sequence: int
    ) -> None:
        """Applies what tasks have staged, with its changes numbered from `sequence` + 1 on.

        Raises RetriableError if some of it is gone.
        """

    def select(self, schema: ViewSchema, selection: Selection) -> pa.Table: ...

    def oldest_change(self, view: str) -> int | None: ...

    def changes(self, view: str, since: int, limit: int) -> list[ViewChange]: ...


class SqlStore(LedgeredStore):
    """A ViewStore on a database; subclasses supply transactions."""

    def _transaction(self) -> AbstractContextManager[SqlSession]:
        """Everything in the block is written durably at its end, or nothing is."""
        raise NotImplementedError

    def _reading(self, view: str | None = None) -> AbstractContextManager[SqlSession]:
        """Everything in the block sees the same version of the view."""
        raise NotImplementedError

    def prepare(self, schema: ViewSchema) -> None:
        with self._transaction() as session:
            ledger = session.ledger(schema.name, lock=True)
            if ledger is None:
                session.create(schema)
                session.write_ledger(Ledger(schema=schema))
                return
            ledger.require_rows_of(schema)
            session.write_ledger(ledger.with_schema(schema))

    def begin(
        self, view: str, query_id: str, *, schema: ViewSchema | None = None, first_batch: int = 0
    ) -> Reflected:
        with self._transaction() as session:
            ledger = _require(session, view, lock=True).begin(query_id, schema, first_batch)
            session.write_ledger(ledger)
            return ledger.reflected

    def apply(self, view: str, batch: ViewBatch) -> bool:
        with self._transaction() as session:
            before = _require(session, view, lock=True)
            accepted = before.accept(batch)
            if accepted is None:
                return False
            reached("begun")
            schema = accepted.ledger.schema
            if accepted.resets:
                session.clear(before.schema, schema)
            session.write_rows(schema, net_changes(schema, batch.changes, distinct=batch.distinct))
            changes, sequence = kept_changes(schema, batch, accepted.ledger.sequence)
            if batch.staged:
                session.take_up(schema, batch.batch_id, batch.staged, sequence)
                sequence = accepted.ledger.sequence + batch.changed
            reached("rows written")
            session.write_changes(view, changes, sequence - schema.keep_changes)
            session.write_ledger(accepted.ledger.with_sequence(sequence))
            reached("ledger written")
        reached("committed")
        return True

    def _snapshot(self, view: str, choose: Choose) -> Snapshot:
        with self._reading(view) as session:
            ledger = _require(session, view)
            selection = choose(ledger.schema)
            return Snapshot(session.select(ledger.schema, selection), ledger.reflected)

    def changes(self, view: str, since: int = 0, limit: int = 1_000) -> list[ViewChange]:
        with self._reading(view) as session:
            ledger = _require(session, view)
            require_since(view, since, session.oldest_change(view), ledger.sequence)
            found = session.changes(view, since, limit)
            expected = min(limit, ledger.sequence - since)
            if len(found) != expected:
                raise CorruptionError(
                    f"table headrace_changes is damaged: of view {view!r} it has {len(found)} changes after "
                    f"{since}, not {expected}"
                )
            return found

    def views(self) -> list[str]:
        with self._reading() as session:
            return session.views()

    def drop(self, view: str) -> None:
        with self._transaction() as session:
            ledger = session.ledger(view, lock=True)
            if ledger is not None:
                session.forget(ledger.schema)

    def _ledger(self, view: str) -> Ledger:
        with self._reading() as session:
            return _require(session, view)


def _require(session: SqlSession, view: str, *, lock: bool = False) -> Ledger:
    ledger = session.ledger(view, lock=lock)
    return ledger if ledger is not None else require_view(None, view, session.views())
