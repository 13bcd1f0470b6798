"""What stores answer from a view's ledger alone, the same in each."""

from collections.abc import Iterable

import pyarrow as pa

from headrace.views.ledger import Ledger, Reflected
from headrace.views.schema import ViewSchema
from headrace.views.selecting import Condition, Order
from headrace.views.store import Snapshot

__all__ = ["Ledgered"]


class Ledgered:
    """Part of every ViewStore; the others supply `_ledger` and `snapshot`."""

    def _ledger(self, view: str) -> Ledger:
        """The view's ledger as it is now; raises RequestError if there is no such view."""
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
        raise NotImplementedError

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
