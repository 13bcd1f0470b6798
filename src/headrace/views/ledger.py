"""The ledger of a view: which batch of which query it reflects, and what may come next. Pure.

Every store keeps one ledger per view and changes it atomically with the rows, so the two
never disagree. A batch that has been applied is recognised by its number, together with the
query's id, because a query that has lost its checkpoint counts from 0 again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import FencedError, RequestError
from headrace.views.batch import Offsets, ViewBatch
from headrace.views.schema import ViewSchema

__all__ = ["Accepted", "Ledger", "Reflected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflected:
    """What a view reflects: everything before these offsets, as of this batch.

    `batch_id` is -1 and `query_id` None before the first batch. `offsets` are the next
    ones to be read, by topic and partition; `counters` are totals since the query began. Of a
    query over several topics, `inputs` are these totals by input, and `watermarks` are by topic.
    """

    query_id: str | None = None
    batch_id: int = -1
    offsets: Offsets = field(default_factory=dict)
    watermark_us: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    inputs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The ledger after a batch; with `resets`, the batch replaces all older rows."""

    ledger: "Ledger"
    resets: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The state of one view beside its rows.

    `sequence` numbers the view's changes for `ViewStore.changes`. The three fields that
    begin with `next_` are those of a query that has begun and not written yet.
    """

    schema: ViewSchema
    reflected: Reflected = field(default_factory=Reflected)
    sequence: int = 0
    next_query: str | None = None
    next_schema: ViewSchema | None = None
    next_batch: int = 0

    def begin(self, query_id: str, schema: ViewSchema | None, first_batch: int) -> "Ledger":
        """The ledger with `query_id` as the view's owner; the rows stay until its first batch."""
        wanted = self.schema if schema is None else schema
        if query_id == self.reflected.query_id:
            _require_same(self.schema, wanted)
            return replace(self, next_query=None, next_schema=None, next_batch=0)
        if query_id == self.next_query and schema is None:
            return self
        return replace(self, next_query=query_id, next_schema=wanted, next_batch=first_batch)

    def accept(self, batch: ViewBatch) -> Accepted | None:
        """The ledger after the batch, or None if it has been applied already.

        Raises FencedError when another query owns the view, and RequestError when
        batches are missing in between.
        """
        if self.next_query is not None:
            return self._accept_first(batch)
        if batch.query_id != self.reflected.query_id:
            raise self._foreign(batch.query_id, self.reflected.query_id)
        if batch.batch_id <= self.reflected.batch_id:
            return None
        self._require_next(batch, self.reflected.batch_id + 1)
        return Accepted(replace(self, reflected=_advanced(self.reflected, batch)), resets=False)

    def _accept_first(self, batch: ViewBatch) -> Accepted:
        if batch.query_id != self.next_query:
            raise self._foreign(batch.query_id, self.next_query)
        self._require_next(batch, self.next_batch)
        begun = Ledger(
            schema=self.next_schema or self.schema,
            reflected=_advanced(Reflected(), batch),
            # One number stays unused, so that followers of the changes notice the break.
            sequence=self.sequence + (self.reflected.query_id is not None),
        )
        return Accepted(begun, resets=True)

    def _foreign(self, query_id: str, owner: str | None) -> FencedError:
        name = self.schema.name
        if owner is None:
            return FencedError(f"view {name!r} has no query yet; call begin({name!r}, {query_id!r}) first")
        return FencedError(
            f"view {name!r} belongs to query {owner} now, so query {query_id} must stop; "
            "to write it from there again, call begin"
        )

    def _require_next(self, batch: ViewBatch, expected: int) -> None:
        if batch.batch_id != expected:
            raise RequestError(
                f"view {self.schema.name!r} expects batch {expected} of query {batch.query_id} but was given "
                f"{batch.batch_id}: the batches in between never reached this store (was it replaced or "
                "restored?). Rebuild the view from the log"
            )

    def require_rows_of(self, schema: ViewSchema) -> None:
        """Raises RequestError if the view was created with another key or other columns."""
        _require_same(self.schema, schema)

    def with_schema(self, schema: ViewSchema) -> "Ledger":
        return replace(self, schema=schema)

    def with_sequence(self, sequence: int) -> "Ledger":
        return replace(self, sequence=sequence)

    def dumps(self) -> str:
        """As JSON text, for `loads`."""
        return json.dumps(self.to_json())

    @classmethod
    def loads(cls, text: str | bytes) -> "Ledger":
        """The ledger that `dumps` was called on."""
        return cls.from_json(json.loads(text))

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `from_json`."""
        return {
            "schema": self.schema.to_json(),
            "reflected": reflected_to_json(self.reflected),
            "sequence": self.sequence,
            "next_query": self.next_query,
            "next_schema": self.next_schema.to_json() if self.next_schema else None,
            "next_batch": self.next_batch,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Ledger":
        return cls(
            schema=ViewSchema.from_json(data["schema"]),
            reflected=reflected_from_json(data["reflected"]),
            sequence=data["sequence"],
            next_query=data["next_query"],
            next_schema=ViewSchema.from_json(data["next_schema"]) if data["next_schema"] else None,
            next_batch=data["next_batch"],
        )


def reflected_to_json(reflected: Reflected) -> dict[str, Any]:
    """Plain values; partitions become text, as keys in JSON must be."""
    return {
        "query_id": reflected.query_id,
        "batch_id": reflected.batch_id,
        "offsets": {
            topic: {str(partition): offset for partition, offset in each.items()}
            for topic, each in reflected.offsets.items()
        },
        "watermark_us": reflected.watermark_us,
        "counters": dict(reflected.counters),
        "inputs": {name: dict(each) for name, each in reflected.inputs.items()},
        "watermarks": dict(reflected.watermarks),
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
        counters=data["counters"] if "counters" in data else data["books"],  # of an earlier version
        inputs=data.get("inputs", {}),
        watermarks=data.get("watermarks", {}),
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
        counters=_added(before.counters, batch.counters),
        inputs={
            name: _added(before.inputs.get(name, {}), batch.inputs.get(name, {}))
            for name in dict.fromkeys([*before.inputs, *batch.inputs])
        },
        watermarks={**before.watermarks, **batch.watermarks},
    )


def _added(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: before.get(name, 0) + more.get(name, 0) for name in dict.fromkeys([*before, *more])}


def _require_same(stored: ViewSchema, wanted: ViewSchema) -> None:
    if not stored.same_rows(wanted):
        raise RequestError(
            f"view {stored.name!r} was created differently: {stored.differences(wanted)}. Rebuild it from "
            "the log, or give the new view another name"
        )
