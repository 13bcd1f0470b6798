"""Views in this process's memory, for tests: gone with the process."""

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.views.batch import Net, ViewBatch, net_changes, overlaid
from headrace.views.changelog import kept_changes
from headrace.views.ledger import Entry, Ledger, Reflected
from headrace.views.ledgered import Ledgered
from headrace.views.schema import ViewSchema
from headrace.views.selecting import Condition, Order, Selection, select
from headrace.views.store import Change, Snapshot, require_since, require_view

__all__ = ["MemoryStore"]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A view at one moment; replaced whole, so that readers never see half a batch."""

    ledger: Ledger
    rows: pa.Table
    changes: tuple[Change, ...] = ()


@dataclass(slots=True)
class _Shelf:
    """The views of one name, shared by every store opened under it."""

    views: dict[str, _Kept] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_shelves: dict[str, _Shelf] = {}


class MemoryStore(Ledgered):
    """A ViewStore on Arrow tables; stores of one name share their views within the process.

    Every batch copies the view's table: meant for tests, not for large views.
    """

    def __init__(self, name: str) -> None:
        self._shelf = _shelves.setdefault(name, _Shelf())

    def prepare(self, schema: ViewSchema) -> None:
        with self._shelf.lock:
            kept = self._shelf.views.get(schema.name)
            if kept is None:
                self._shelf.views[schema.name] = _Kept(Ledger(schema=schema), schema.columns.empty_table())
                return
            kept.ledger.require_rows_of(schema)
            self._put(_Kept(kept.ledger.with_schema(schema), kept.rows, kept.changes))

    def begin(
        self, view: str, query_id: str, *, schema: ViewSchema | None = None, first_batch: int = 0
    ) -> Reflected:
        with self._shelf.lock:
            kept = self._kept(view)
            ledger = kept.ledger.begin(query_id, schema, first_batch)
            self._put(_Kept(ledger, kept.rows, kept.changes))
            return ledger.reflected

    def apply(self, view: str, batch: ViewBatch) -> bool:
        with self._shelf.lock:
            kept = self._kept(view)
            entry = kept.ledger.enter(batch)
            if entry is None:
                return False
            schema = entry.ledger.schema
            net = net_changes(schema, batch.changes, distinct=batch.distinct)
            if not entry.resets:
                net = overlaid(schema, [Net(kept.rows, net.removed.slice(0, 0)), net])
            self._put(_with_changes(entry, net.rows, kept.changes, batch))
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
        kept = self._kept(view)
        selection = Selection.of(kept.ledger.schema, where, order, limit, offset)
        return Snapshot(select(kept.rows, selection), kept.ledger.reflected)

    def changes(self, view: str, since: int = 0, limit: int = 1_000) -> list[Change]:
        kept = self._kept(view)
        oldest = kept.changes[0].sequence if kept.changes else None
        require_since(view, since, oldest, kept.ledger.sequence)
        return [each for each in kept.changes if each.sequence > since][:limit]

    def views(self) -> list[str]:
        return sorted(self._shelf.views)

    def drop(self, view: str) -> None:
        with self._shelf.lock:
            self._shelf.views.pop(view, None)

    def close(self) -> None:
        """Nothing to give back: the views stay for other stores of the name."""

    def _ledger(self, view: str) -> Ledger:
        return self._kept(view).ledger

    def _kept(self, view: str) -> _Kept:
        kept = self._shelf.views.get(view)
        require_view(kept.ledger if kept else None, view, self._shelf.views)
        assert kept is not None
        return kept

    def _put(self, kept: _Kept) -> None:
        self._shelf.views[kept.ledger.schema.name] = kept


def _with_changes(entry: Entry, rows: pa.Table, before: tuple[Change, ...], batch: ViewBatch) -> _Kept:
    schema = entry.ledger.schema
    new, sequence = kept_changes(schema, batch, entry.ledger.sequence)
    changes = deque(() if entry.resets else before, maxlen=schema.keep_changes)
    changes.extend(new)
    return _Kept(entry.ledger.with_sequence(sequence), rows, tuple(changes))
