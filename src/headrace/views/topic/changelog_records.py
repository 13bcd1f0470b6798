"""A view's changelog as records. Pure.

A view's topic has two kinds of records. A *change*: its key is the JSON array of the row's
key, its value is

    {"kind": "correct", "key": {…}, "before": {…}, "after": {…}, "batch": 7, "offsets": {…}}

where `kind` is close, update, retract or correct; a correction is a pair, retract and
correct. A *ledger record*: it ends a transaction on each partition, its key is
{"headrace": "ledger"}, and its value is the view's ledger and a number that grows with every
transaction. A rebuild retracts every row and publishes every row again; records about rows
that have not changed carry the header `headrace.replay`. Values are those of
`headrace.views.formats`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from headrace.change_kind import ChangeKind
from headrace.client.write import OutputRecord
from headrace.errors import CorruptionError
from headrace.records import REPLAY_HEADER
from headrace.views.batch import ViewBatch, changed_rows
from headrace.views.formats import rows_to_json
from headrace.views.ledger import Ledger, reflected_to_json
from headrace.views.schema import ViewSchema

__all__ = [
    "LEDGER_KEY",
    "LedgerRecord",
    "change_records",
    "ledger_records",
    "read_ledger_record",
    "rebuild_records",
    "retraction_records",
]

LEDGER_KEY = b'{"headrace":"ledger"}'

_WORDS: dict[int, str] = {
    ChangeKind.CLOSE: "close",
    ChangeKind.UPDATE: "update",
    ChangeKind.CORRECTION: "correct",
    ChangeKind.RETRACTION: "retract",
}


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """The ledger after a transaction, and the number of partitions that the topic had."""

    number: int
    partitions: int
    ledger: Ledger


def ledger_records(topic: str, entered: LedgerRecord) -> Iterator[OutputRecord]:
    """The end of a transaction, on every partition."""
    fields = {"number": entered.number, "partitions": entered.partitions}
    value = orjson.dumps({**fields, "ledger": orjson.Fragment(entered.ledger.dumps())})
    for partition in range(entered.partitions):
        yield OutputRecord(topic, LEDGER_KEY, value, partition=partition)


def read_ledger_record(value: bytes | None) -> LedgerRecord:
    try:
        data = orjson.loads(value or b"")
        return LedgerRecord(data["number"], data["partitions"], Ledger.loads(orjson.dumps(data["ledger"])))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"a ledger record on a view's topic cannot be read: {error!r}") from error


def change_records(
    topic: str, schema: ViewSchema, batch: ViewBatch, ledger: Ledger, *, compacted: bool
) -> Iterator[OutputRecord]:
    """The changes of a batch, in order; a correction as a pair.

    On a compacted topic a removed row is a tombstone, and the retraction before a
    correction is left out: compaction would remove it first.
    """
    if batch.changes is None or batch.changes.num_rows == 0:
        return
    changed = changed_rows(schema, batch.changes)
    keys, before, after = (rows_to_json(each) for each in (changed.keys, changed.before, changed.after))
    tail = _tail(batch.batch_id, ledger)
    for index, kind in enumerate(changed.kinds):
        key, old = keys[index], before[index] if changed.had_before[index] else None
        if not changed.has_after[index]:
            yield _retraction(topic, key, old, tail, compacted=compacted)
            continue
        if kind == ChangeKind.CORRECTION and old is not None and not compacted:
            yield _retraction(topic, key, old, tail, compacted=False)
        yield _record(topic, _WORDS.get(kind, "update"), key, old, after[index], tail)


def retraction_records(
    topic: str, schema: ViewSchema, rows: pa.Table, batch: ViewBatch, ledger: Ledger, *, compacted: bool
) -> Iterator[OutputRecord]:
    """Retracts every row, as a rebuild does first."""
    tail = _tail(batch.batch_id, ledger)
    for row in rows_to_json(rows):
        yield _retraction(topic, {name: row[name] for name in schema.key}, row, tail, compacted=compacted)


def rebuild_records(
    topic: str, old: ViewSchema, rows: pa.Table, batch: ViewBatch, ledger: Ledger, *, compacted: bool
) -> Iterator[OutputRecord]:
    """The first batch of a rebuild: all rows retracted, then published; unchanged ones are marked."""
    retracted = list(retraction_records(topic, old, rows, batch, ledger, compacted=compacted))
    published = list(change_records(topic, ledger.schema, batch, ledger, compacted=compacted))
    before = dict(zip((record.key for record in retracted), rows_to_json(rows), strict=True))
    after = {
        record.key: orjson.loads(record.value)["after"] for record in published if record.value is not None
    }
    same = {key for key, row in before.items() if orjson.loads(orjson.dumps(row)) == after.get(key)}
    for record in (*retracted, *published):
        yield record._replace(headers=((REPLAY_HEADER, b""),)) if record.key in same else record


def _tail(batch_id: int, ledger: Ledger) -> dict[str, Any]:
    offsets = reflected_to_json(ledger.reflected)["offsets"]
    return {"batch": batch_id, "offsets": orjson.Fragment(orjson.dumps(offsets))}


def _retraction(
    topic: str, key: dict[str, Any], before: dict[str, Any] | None, tail: dict[str, Any], *, compacted: bool
) -> OutputRecord:
    if compacted:
        return OutputRecord(topic, _key(key), None)
    return _record(topic, "retract", key, before, None, tail)


def _record(
    topic: str,
    kind: str,
    key: dict[str, Any],
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    tail: dict[str, Any],
) -> OutputRecord:
    value = orjson.dumps({"kind": kind, "key": key, "before": before, "after": after, **tail})
    return OutputRecord(topic, _key(key), value)


def _key(key: dict[str, Any]) -> bytes:
    return orjson.dumps(list(key.values()))
