"""Which batch of which query a view reflects, and what may come next. Pure.

Every store keeps one ledger a view and changes it in the same step that changes the
rows, so the two never disagree. A batch that is already in is told apart by its
number; the query's id stands beside it, because a query without its checkpoint counts
from 0 again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import FencedError, RequestError
from headrace.views.batch import Offsets, ViewBatch
from headrace.views.schema import ViewSchema

__all__ = ["Entry", "Ledger", "Reflected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflected:
    """What a view shows: everything before these offsets, as of this batch.

    `batch_id` is -1 and `query_id` None before the first batch. `offsets` are the next
    ones to be read, by topic and partition; `books` are totals since the query began.
    """

    query_id: str | None = None
    batch_id: int = -1
    offsets: Offsets = field(default_factory=dict)
    watermark_us: int | None = None
    books: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """The ledger after a batch; `resets` when all older rows go first."""

    ledger: "Ledger"
    resets: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The state of one view beside its rows.

    `sequence` numbers the view's changes for `ViewStore.changes`. The three fields
    that begin with `next_` hold a query that began and has not written yet.
    """

    schema: ViewSchema
    reflected: Reflected = field(default_factory=Reflected)
    sequence: int = 0
    next_query: str | None = None
    next_schema: ViewSchema | None = None
    next_batch: int = 0

    def begin(self, query_id: str, schema: ViewSchema | None, first_batch: int) -> "Ledger":
        """The ledger once `query_id` owns the view; the rows stay until its first batch comes."""
        wanted = self.schema if schema is None else schema
        if query_id == self.reflected.query_id:
            _require_same(self.schema, wanted)
            return replace(self, next_query=None, next_schema=None, next_batch=0)
        if query_id == self.next_query and schema is None:
            return self
        return replace(self, next_query=query_id, next_schema=wanted, next_batch=first_batch)

    def enter(self, batch: ViewBatch) -> Entry | None:
        """What the batch makes of the ledger, or None if it is in already.

        Raises FencedError when another query owns the view, and RequestError when
        batches are missing in between.
        """
        if self.next_query is not None:
            return self._enter_first(batch)
        if batch.query_id != self.reflected.query_id:
            raise self._foreign(batch.query_id, self.reflected.query_id)
        if batch.batch_id <= self.reflected.batch_id:
            return None
        self._require_next(batch, self.reflected.batch_id + 1)
        return Entry(replace(self, reflected=_advanced(self.reflected, batch)), resets=False)

    def _enter_first(self, batch: ViewBatch) -> Entry:
        if batch.query_id != self.next_query:
            raise self._foreign(batch.query_id, self.next_query)
        self._require_next(batch, self.next_batch)
        begun = Ledger(
            schema=self.next_schema or self.schema,
            reflected=_advanced(Reflected(), batch),
            # One number stays unused, so that whoever follows the changes notices the break.
            sequence=self.sequence + (self.reflected.query_id is not None),
        )
        return Entry(begun, resets=True)

    def _foreign(self, query_id: str, owner: str | None) -> FencedError:
        name = self.schema.name
        if owner is None:
            return FencedError(f"view {name!r} has no query yet; call begin({name!r}, {query_id!r}) first")
        return FencedError(
            f"view {name!r} belongs to query {owner} now, and query {query_id} must stop; "
            "to write it again from there, begin it anew"
        )

    def _require_next(self, batch: ViewBatch, expected: int) -> None:
        if batch.batch_id != expected:
            raise RequestError(
                f"view {self.schema.name!r} awaits batch {expected} of query {batch.query_id} and was given "
                f"{batch.batch_id}: batches in between never reached this store (was it replaced or "
                "restored?). Rebuild the view from the log"
            )

    def require_rows_of(self, schema: ViewSchema) -> None:
        """Raises RequestError when the view was made with another key or other columns."""
        _require_same(self.schema, schema)

    def with_schema(self, schema: ViewSchema) -> "Ledger":
        return replace(self, schema=schema)

    def with_sequence(self, sequence: int) -> "Ledger":
        return replace(self, sequence=sequence)

    def dumps(self) -> str:
        """As JSON text, for `loads`."""
        return json.dumps(
            {
                "schema": self.schema.to_json(),
                "reflected": reflected_to_json(self.reflected),
                "sequence": self.sequence,
                "next_query": self.next_query,
                "next_schema": self.next_schema.to_json() if self.next_schema else None,
                "next_batch": self.next_batch,
            }
        )

    @classmethod
    def loads(cls, text: str | bytes) -> "Ledger":
        """The ledger that `dumps` was called on."""
        data = json.loads(text)
        return cls(
            schema=ViewSchema.from_json(data["schema"]),
            reflected=reflected_from_json(data["reflected"]),
            sequence=data["sequence"],
            next_query=data["next_query"],
            next_schema=ViewSchema.from_json(data["next_schema"]) if data["next_schema"] else None,
            next_batch=data["next_batch"],
        )


def reflected_to_json(reflected: Reflected) -> dict[str, Any]:
    """A plain form; partitions become text, as JSON's names must be."""
    return {
        "query_id": reflected.query_id,
        "batch_id": reflected.batch_id,
        "offsets": {
            topic: {str(partition): offset for partition, offset in each.items()}
            for topic, each in reflected.offsets.items()
        },
        "watermark_us": reflected.watermark_us,
        "books": dict(reflected.books),
    }


def reflected_from_json(data: dict[str, Any]) -> Reflected:
    offsets = {
        topic: {int(partition): offset for partition, offset in each.items()}
        for topic, each in data["offsets"].items()
    }
    return Reflected(
        query_id=data["query_id"],
        batch_id=data["batch_id"],
        offsets=offsets,
        watermark_us=data["watermark_us"],
        books=data["books"],
    )


def _advanced(before: Reflected, batch: ViewBatch) -> Reflected:
    marks = [each for each in (before.watermark_us, batch.watermark_us) if each is not None]
    topics = before.offsets.keys() | batch.offsets.keys()
    return Reflected(
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        offsets={
            topic: {**before.offsets.get(topic, {}), **batch.offsets.get(topic, {})}
            for topic in sorted(topics)
        },
        watermark_us=max(marks, default=None),
        books={
            name: before.books.get(name, 0) + batch.books.get(name, 0)
            for name in [*before.books, *(each for each in batch.books if each not in before.books)]
        },
    )


def _require_same(stored: ViewSchema, wanted: ViewSchema) -> None:
    if not stored.same_rows(wanted):
        raise RequestError(
            f"view {stored.name!r} was made differently: {stored.differences(wanted)}. Rebuild it from the "
            "log, or give the new view another name"
        )
