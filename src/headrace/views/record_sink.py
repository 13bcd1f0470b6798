"""Records to topics, each batch once: late topics, dead-letter topics, derived topics."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from headrace.client import Connection
from headrace.views.numbered import NumberedProducer, OutputRecord
from headrace.views.topics import TopicSettings, create_topics

__all__ = ["RecordSink", "records_of"]


class RecordSink:
    """Writes a query's records; a repeated batch does nothing, and readers of committed records see no half.

    `name` belongs to one pipeline for ever (it fences older drivers, also those of an
    older query); `query_id` is its present query. Topics in `topics` are made if they
    are missing.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        query_id: str,
        *,
        topics: Mapping[str, TopicSettings] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self.query_id = query_id
        self._connection = connection
        self._topics = dict(topics or {})
        self._properties = dict(properties or {})
        self._producer = NumberedProducer(connection, name, properties=properties)

    def open(self) -> int:
        """Takes the name over, makes missing topics; the last batch that was written, -1 if none was."""
        create_topics(self._connection, self._topics, self._properties)
        self._topics = {}
        return self._producer.open(self.query_id)

    def write(self, batch_id: int, records: Iterable[OutputRecord]) -> bool:
        """Writes a batch in one transaction; False if it was written before.

        A batch without records leaves no trace and counts as written. Raises FencedError when a newer driver
        has taken over, RetriableError when the log is away: then call it again.
        """
        waiting = iter(records)
        first = next(waiting, None)
        if first is None:
            return True
        if self._topics:
            self.open()
        return self._producer.write(self.query_id, batch_id, _chained(first, waiting))

    def close(self) -> None:
        """Leaves; an open transaction is aborted."""
        self._producer.close()


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
