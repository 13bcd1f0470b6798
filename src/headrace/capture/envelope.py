"""Debezium's envelope, without schemas: the value of a change, and the END record of a transaction. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from headrace.capture.change import Change, TableSchema

__all__ = ["Envelope", "EnvelopeTexts", "cut", "schema_value"]


@dataclass(frozen=True, slots=True)
class EnvelopeTexts:
    """What the envelopes of a transaction have in common, for code that makes many at once. A value is:

        {"before": … ,"after": … SOURCE … BEFORE_OP op BEHIND_OP total BETWEEN_ORDERS order END

    with the texts of this class in capitals; `Envelope.source_text` is SOURCE, of a table, followed
    by the change's own members of `source`, if it has any, each after a comma.
    """

    behind_op: bytes
    before_op: bytes = b'},"op":"'
    between_orders: bytes = b',"data_collection_order":'
    end: bytes = b"}}"


class Envelope:
    """Makes the values of one source's changes.

    `connector`, `name` and `database` stand in the `source` of every change; a transaction's id and
    commit time come with `begin`.
    """

    def __init__(self, *, connector: str, name: str, database: str, version: str) -> None:
        said = {"version": version, "connector": connector, "name": name, "db": database}
        self._said = orjson.dumps(said)[:-1]
        self._tables: dict[str, bytes] = {}
        self._orders: dict[str, int] = {}
        self._total = 0
        self._id = b"null"
        self._committed_us = 0

    def begin(self, transaction_id: str, committed_us: int) -> None:
        """Changes from here on belong to this transaction."""
        self._id = orjson.dumps(transaction_id)
        self._committed_us = committed_us
        self._orders.clear()
        self._total = 0

    @property
    def counts(self) -> Mapping[str, int]:
        """How many changes of each table this transaction has had so far."""
        return self._orders

    def value(self, change: Change, now_ms: int) -> bytes:
        """A change of the current transaction."""
        order = self._orders[change.table] = self._orders.get(change.table, 0) + 1
        self._total += 1
        transaction = b'{"id":%b,"total_order":%d,"data_collection_order":%d}' % (
            self._id,
            self._total,
            order,
        )
        return self._value(change, b"false", self._committed_us, now_ms, transaction)

    @property
    def total(self) -> int:
        """How many changes this transaction has had so far."""
        return self._total

    def texts(self, now_ms: int) -> EnvelopeTexts:
        """The parts of which envelopes in the current transaction are made."""
        return EnvelopeTexts(b'","ts_ms":%d,"transaction":{"id":%b,"total_order":' % (now_ms, self._id))

    def source_text(self, table: str) -> bytes:
        """What follows `after` in changes of this table in the current transaction."""
        at_us = self._committed_us
        said = self._tables.get(table) or self._table(table)
        return b',"source":%b,"snapshot":"false","ts_ms":%d,"ts_us":%d' % (said, at_us // 1000, at_us)

    def count(self, table: str, changes: int) -> None:
        """Counts changes of the transaction that were put together elsewhere."""
        if changes:
            self._orders[table] = self._orders.get(table, 0) + changes
            self._total += changes

    def snapshot_text(self, table: str, source: bytes, read_us: int, now_ms: int) -> bytes:
        """What follows `after` in rows of this table that a snapshot has read."""
        empty = Change(table, "r", None, None, None, source)
        return self.snapshot_value(empty, read_us, now_ms).removeprefix(b'{"before":null,"after":null')

    def snapshot_value(self, change: Change, read_us: int, now_ms: int) -> bytes:
        """A row that a snapshot has read, which belongs to no transaction."""
        return self._value(change, b"true", read_us, now_ms, b"null")

    def _value(self, change: Change, snapshot: bytes, at_us: int, now_ms: int, transaction: bytes) -> bytes:
        table = self._tables.get(change.table) or self._table(change.table)
        more = b"," + change.source if change.source else b""
        unchanged = b',"unchanged":' + orjson.dumps(change.unchanged) if change.unchanged else b""
        return (
            b'{"before":%b,"after":%b,"source":%b,"snapshot":"%b","ts_ms":%d,"ts_us":%d%b},"op":"%b",'
            b'"ts_ms":%d,"transaction":%b%b}'
            % (
                change.before or b"null",
                change.after or b"null",
                table,
                snapshot,
                at_us // 1000,
                at_us,
                more,
                change.op.encode(),
                now_ms,
                transaction,
                unchanged,
            )
        )

    def _table(self, table: str) -> bytes:
        schema, _, name = table.partition(".")
        said = self._said + b',"schema":%b,"table":%b' % (orjson.dumps(schema), orjson.dumps(name))
        self._tables[table] = said
        return said


def cut(
    transaction_id: str,
    committed_us: int,
    counts: Mapping[str, int],
    offsets: Mapping[str, Mapping[str, int]],
) -> tuple[bytes, bytes]:
    """Key and value of the END record: how many changes there were, and where every partition ends."""
    value = {
        "status": "END",
        "id": transaction_id,
        "ts_ms": committed_us // 1000,
        "event_count": sum(counts.values()),
        "data_collections": [
            {"data_collection": table, "event_count": count} for table, count in counts.items()
        ],
        "offsets": offsets,
    }
    return orjson.dumps({"id": transaction_id}), orjson.dumps(value)


def schema_value(schema: TableSchema) -> bytes:
    """The value of the schema topic: columns in order, with both of their types, and the key."""
    columns = [
        {"name": each.name, "type": each.type, "spark_type": each.spark_type, "optional": each.optional}
        for each in schema.columns
    ]
    return orjson.dumps({"table": schema.table, "columns": columns, "key": schema.key})
