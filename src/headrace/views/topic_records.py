"""A view's changelog as records. Pure.

Two kinds of records stand on a view's topic. A *change*: its key is the JSON array of
the row's key, its value

    {"kind": "correct", "key": {…}, "before": {…}, "after": {…}, "batch": 7, "offsets": {…}}

with `kind` one of close, update, retract and correct; a correction is a pair, retract
and correct. An *entry*: it ends a transaction on each partition, its key is
{"headrace": "ledger"}, its value the view's ledger and a number that grows with every
transaction. A rebuild takes every row back and publishes every row anew; records about rows
that are the same as before carry the header `headrace.replay`. Values are those of
`headrace.views.json_values`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from headrace.errors import CorruptionError
from headrace.views.batch import Kind, ViewBatch, changed_rows
from headrace.views.json_values import rows_to_json
from headrace.views.ledger import Ledger, reflected_to_json
from headrace.views.numbered import OutputRecord
from headrace.views.schema import ViewSchema

__all__ = [
    "ENTRY_KEY",
    "REPLAY_HEADER",
    "Entered",
    "change_records",
    "entry_records",
    "read_entry",
    "rebuild_records",
    "retraction_records",
]

REPLAY_HEADER = "headrace.replay"
ENTRY_KEY = b'{"headrace":"ledger"}'

_WORDS: dict[int, str] = {
    Kind.CLOSE: "close",
    Kind.UPDATE: "update",
    Kind.CORRECTION: "correct",
    Kind.RETRACTION: "retract",
}


@dataclass(frozen=True, slots=True)
class Entered:
    """An entry: the ledger behind a transaction, and how many partitions the topic had."""

    number: int
    partitions: int
    ledger: Ledger


def entry_records(topic: str, entered: Entered) -> Iterator[OutputRecord]:
    """The end of a transaction, on every partition."""
    fields = {"number": entered.number, "partitions": entered.partitions}
    value = orjson.dumps({**fields, "ledger": orjson.Fragment(entered.ledger.dumps())})
    for partition in range(entered.partitions):
        yield OutputRecord(topic, ENTRY_KEY, value, partition=partition)


def read_entry(value: bytes | None) -> Entered:
    try:
        data = orjson.loads(value or b"")
        return Entered(data["number"], data["partitions"], Ledger.loads(orjson.dumps(data["ledger"])))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"a ledger entry on a view's topic cannot be read: {error!r}") from error


def change_records(
    topic: str, schema: ViewSchema, batch: ViewBatch, ledger: Ledger, *, compacted: bool
) -> Iterator[OutputRecord]:
    """The changes of a batch, in order; retract and correct as a pair.

    On a compacted topic a row that goes is a tombstone, and the retraction before a
    correction is left out: it would be the first thing to be cleaned away.
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
        if kind == Kind.CORRECTION and old is not None and not compacted:
            yield _retraction(topic, key, old, tail, compacted=False)
        yield _record(topic, _WORDS.get(kind, "update"), key, old, after[index], tail)


def retraction_records(
    topic: str, schema: ViewSchema, rows: pa.Table, batch: ViewBatch, ledger: Ledger, *, compacted: bool
) -> Iterator[OutputRecord]:
    """Takes every row back: what a rebuild begins with."""
    tail = _tail(batch.batch_id, ledger)
    for row in rows_to_json(rows):
        yield _retraction(topic, {name: row[name] for name in schema.key}, row, tail, compacted=compacted)


def rebuild_records(
    topic: str, old: ViewSchema, rows: pa.Table, batch: ViewBatch, ledger: Ledger, *, compacted: bool
) -> Iterator[OutputRecord]:
    """The first batch of a rebuild: all rows back, all rows anew; what is the same again is marked."""
    back = list(retraction_records(topic, old, rows, batch, ledger, compacted=compacted))
    anew = list(change_records(topic, ledger.schema, batch, ledger, compacted=compacted))
    before = dict(zip((record.key for record in back), rows_to_json(rows), strict=True))
    after = {record.key: orjson.loads(record.value)["after"] for record in anew if record.value is not None}
    same = {key for key, row in before.items() if orjson.loads(orjson.dumps(row)) == after.get(key)}
    for record in (*back, *anew):
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
