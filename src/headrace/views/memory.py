"""Views in this process's memory, for tests: gone with the process."""

import threading
from collections import deque
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.views.batch import NetChanges, ViewBatch, net_changes, overlaid
from headrace.views.changes import ViewChange, kept_changes
from headrace.views.ledger import Accepted, Ledger, Reflected
from headrace.views.schema import ViewSchema
from headrace.views.selection import Choose, select
from headrace.views.store import LedgeredStore, Snapshot, require_since, require_view

__all__ = ["MemoryStore"]


@dataclass(frozen=True, slots=True)
class _StoredView:
    """One version of a view; replaced as a whole, so that readers never see half a batch."""

    ledger: Ledger
    rows: pa.Table
    changes: tuple[ViewChange, ...] = ()


@dataclass(slots=True)
class _SharedViews:
    """The views of one name, shared by every store opened under it."""

    views: dict[str, _StoredView] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_shared_views: dict[str, _SharedViews] = {}


class MemoryStore(LedgeredStore):
    """A ViewStore on Arrow tables; stores of one name share their views within the process.

    Every batch copies the view's table: meant for tests, not for large views.
    """

    def __init__(self, name: str) -> None:
        self._shared = _shared_views.setdefault(name, _SharedViews())

    def prepare(self, schema: ViewSchema) -> None:
        with self._shared.lock:
            stored = self._shared.views.get(schema.name)
            if stored is None:
                self._shared.views[schema.name] = _StoredView(
                    Ledger(schema=schema), schema.columns.empty_table()
                )
                return
            stored.ledger.require_rows_of(schema)
            self._put(_StoredView(stored.ledger.with_schema(schema), stored.rows, stored.changes))

    def begin(
        self, view: str, query_id: str, *, schema: ViewSchema | None = None, first_batch: int = 0
    ) -> Reflected:
        with self._shared.lock:
            stored = self._stored(view)
            ledger = stored.ledger.begin(query_id, schema, first_batch)
            self._put(_StoredView(ledger, stored.rows, stored.changes))
            return ledger.reflected

    def apply(self, view: str, batch: ViewBatch) -> bool:
        with self._shared.lock:
            stored = self._stored(view)
            accepted = stored.ledger.accept(batch)
            if accepted is None:
                return False
            schema = accepted.ledger.schema
            net = net_changes(schema, batch.changes, distinct=batch.distinct)
            if not accepted.resets:
                net = overlaid(schema, [NetChanges(stored.rows, net.removed.slice(0, 0)), net])
            self._put(_with_changes(accepted, net.rows, stored.changes, batch))
            return True

    def _snapshot(self, view: str, choose: Choose) -> Snapshot:
        stored = self._stored(view)
        selection = choose(stored.ledger.schema)
        return Snapshot(select(stored.rows, selection), stored.ledger.reflected)

    def changes(self, view: str, since: int = 0, limit: int = 1_000) -> list[ViewChange]:
        stored = self._stored(view)
        oldest = stored.changes[0].sequence if stored.changes else None
        require_since(view, since, oldest, stored.ledger.sequence)
        return [each for each in stored.changes if each.sequence > since][:limit]

    def views(self) -> list[str]:
        return sorted(self._shared.views)

    def drop(self, view: str) -> None:
        with self._shared.lock:
            self._shared.views.pop(view, None)

    def close(self) -> None:
        """Nothing to close: the views stay for other stores of the name."""

    def _ledger(self, view: str) -> Ledger:
        return self._stored(view).ledger

    def _stored(self, view: str) -> _StoredView:
        stored = self._shared.views.get(view)
        require_view(stored.ledger if stored else None, view, self._shared.views)
        assert stored is not None
        return stored

    def _put(self, stored: _StoredView) -> None:
        self._shared.views[stored.ledger.schema.name] = stored


def _with_changes(
    accepted: Accepted, rows: pa.Table, before: tuple[ViewChange, ...], batch: ViewBatch
) -> _StoredView:
    schema = accepted.ledger.schema
    new, sequence = kept_changes(schema, batch, accepted.ledger.sequence)
    changes = deque(() if accepted.resets else before, maxlen=schema.keep_changes)
    changes.extend(new)
    return _StoredView(accepted.ledger.with_sequence(sequence), rows, tuple(changes))
