"""Writes a query's records to topics, each batch once: late, dead-letter and derived topics."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from headrace.client.connect import Connection
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.client.write.transactions import OutputRecord, TransactionalWriter

__all__ = ["RecordSink", "records_of"]


class RecordSink:
    """Writes a query's records; repeated batches are ignored, and batches are committed as a whole.

    `name` belongs to one pipeline for good (it fences older drivers, including those of an
    older query); `query_id` is its current query. Topics in `topics` are created if they
    are missing. `require_owner` is that of `TransactionalWriter`.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        query_id: str,
        *,
        topics: Mapping[str, TopicSettings] | None = None,
        properties: Mapping[str, Any] | None = None,
        require_owner: Callable[[], None] | None = None,
    ) -> None:
        self.query_id = query_id
        self._connection = connection
        self._topics = dict(topics or {})
        self._properties = dict(properties or {})
        self._writer = TransactionalWriter(
            connection, name, properties=properties, require_owner=require_owner
        )

    def open(self) -> int:
        """Takes over the name and creates missing topics; the last batch that was written, or -1."""
        ensure_topics(self._connection, self._topics, self._properties)
        self._topics = {}
        return self._writer.open(self.query_id)

    def take_over(self) -> None:
        """Only takes over the name; its last owner's transaction has ended when this returns."""
        self._writer.take_over()

    def last_batch(self) -> int:
        """The last batch of the query that is on the log, or -1."""
        return self._writer.open(self.query_id)

    def write(self, batch_id: int, records: Iterable[OutputRecord]) -> bool:
        """Writes a batch in one transaction; False if it was written before.

        A batch without records leaves no trace and counts as written. Raises FencedError when a newer
        driver has taken over, RetriableError when the log is unreachable: then call it again.
        """
        waiting = iter(records)
        first = next(waiting, None)
        if first is None:
            return True
        if self._topics:
            self.open()
        return self._writer.write(self.query_id, batch_id, _chained(first, waiting))

    def close(self) -> None:
        """Closes the writer; an open transaction is aborted."""
        self._writer.close()


def _chained(first: OutputRecord, rest: Iterator[OutputRecord]) -> Iterator[OutputRecord]:
    yield first
    yield from rest


def records_of(topic: str, table: pa.Table) -> Iterator[OutputRecord]:
    """Records from columns: `key` and `value` (binary or text), and `headers`, `partition`, `timestamp_ms`
    where the table has them. Headers are a list of structs of key and value.
    """
    count = table.num_rows
    blank = [None] * count
    named = {name: table[name].to_pylist() for name in table.column_names}
    columns = [named.get(name, blank) for name in ("key", "value", "headers", "partition", "timestamp_ms")]
    for key, value, headers, partition, timestamp_ms in zip(*columns, strict=True):
        yield OutputRecord(
            topic,
            _bytes(key),
            _bytes(value),
            tuple((each["key"], each["value"]) for each in headers or ()),
            partition,
            timestamp_ms,
        )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
