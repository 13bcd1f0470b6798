"""Views in a database: one transaction a batch holds rows, ledger and changes.

What is the same in every database is here; `SqlSession` is what one of them does
inside a transaction.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol

import pyarrow as pa

from headrace.steps import reached
from headrace.views.batch import Net, ViewBatch, net_changes
from headrace.views.changelog import kept_changes
from headrace.views.ledger import Ledger, Reflected
from headrace.views.ledgered import Ledgered
from headrace.views.schema import ViewSchema
from headrace.views.selecting import Condition, Order, Selection
from headrace.views.store import Change, Snapshot, require_since, require_view

__all__ = ["SqlSession", "SqlStore"]


class SqlSession(Protocol):
    """One transaction on one connection."""

    def ledger(self, view: str, *, lock: bool = False) -> Ledger | None:
        """The view's ledger; `lock` keeps other writers of the view waiting until the end."""

    def views(self) -> list[str]: ...

    def write_ledger(self, ledger: Ledger) -> None: ...

    def create(self, schema: ViewSchema) -> None:
        """Makes the view's table; raises RequestError if the name is taken."""

    def clear(self, old: ViewSchema, new: ViewSchema) -> None:
        """Removes all rows and changes, and gives the table its new columns."""

    def forget(self, schema: ViewSchema) -> None:
        """Removes the view's table, ledger and changes."""

    def write_rows(self, schema: ViewSchema, net: Net) -> None: ...

    def write_changes(self, view: str, changes: list[Change], drop_up_to: int) -> None:
        """Adds changes, and drops those with numbers up to `drop_up_to`."""

    def select(self, schema: ViewSchema, selection: Selection) -> pa.Table: ...

    def oldest_change(self, view: str) -> int | None: ...

    def changes(self, view: str, since: int, limit: int) -> list[Change]: ...


class SqlStore(Ledgered):
    """A ViewStore on a database; subclasses supply transactions."""

    def _transaction(self) -> AbstractContextManager[SqlSession]:
        """Everything in the block is written durably at its end, or nothing."""
        raise NotImplementedError

    def _reading(self, view: str | None = None) -> AbstractContextManager[SqlSession]:
        """Everything in the block sees the same moment of the view."""
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
            entry = before.enter(batch)
            if entry is None:
                return False
            reached("begun")
            schema = entry.ledger.schema
            if entry.resets:
                session.clear(before.schema, schema)
            session.write_rows(schema, net_changes(schema, batch.changes, distinct=batch.distinct))
            reached("rows written")
            changes, sequence = kept_changes(schema, batch, entry.ledger.sequence)
            session.write_changes(view, changes, sequence - schema.keep_changes)
            session.write_ledger(entry.ledger.with_sequence(sequence))
            reached("ledger written")
        reached("committed")
        return True

    def snapshot(
        self,
        view: str,
        *,
        where: Iterable[Condition] = (),
        order: Iterable[Order] = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> Snapshot:
        with self._reading(view) as session:
            ledger = _require(session, view)
            selection = Selection.of(ledger.schema, where, order, limit, offset)
            return Snapshot(session.select(ledger.schema, selection), ledger.reflected)

    def changes(self, view: str, since: int = 0, limit: int = 1_000) -> list[Change]:
        with self._reading(view) as session:
            ledger = _require(session, view)
            require_since(view, since, session.oldest_change(view), ledger.sequence)
            return session.changes(view, since, limit)

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
