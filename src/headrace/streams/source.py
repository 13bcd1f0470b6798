"""The log as a Python data source of Spark, for streaming and for batch.

Spark asks the stream reader, in a process beside the driver, where the log ends
(`latestOffset`) and into which ranges to cut what is new (`partitions`); `read` then
runs in the workers, each on a connection of its own, and yields Arrow batches. All
positions live in Spark's checkpoint: the source itself keeps nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.client import LATEST, RawFetcher
from headrace.streams.options import SourceOptions, read_options, start_time
from headrace.streams.positions import Position, Range, admit, ranges
from headrace.streams.rows import RAW_SCHEMA, RowReader

__all__ = ["FORMAT", "LogSource", "register"]

FORMAT = "headrace"


def register(spark: SparkSession) -> None:
    """Makes the format "headrace" known to a session; harmless when repeated."""
    spark.dataSource.register(LogSource)


class LogSource(DataSource):
    """A topic as a table: the columns of the schema that is given, or the raw records without one."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return RAW_SCHEMA

    def reader(self, schema: StructType) -> "LogReader":
        return LogReader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> "LogStreamReader":  # noqa: N802 - Spark's name
        return LogStreamReader(read_options(self.options), schema)


class _RangeReader:
    """What both readers share: positions on the log, and reading one range in a worker."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        RowReader(schema)  # a bad schema is refused here, before any task runs
        self._options = options
        self._row_schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, in the order of their offsets; runs in a worker."""
        span: Range | None = partition.value
        if span is None:  # Spark's way of saying that there is nothing to read
            return
        rows = RowReader(self._row_schema)
        with self._fetcher() as fetcher:
            runs = fetcher.fetch(span.topic, span.partition, span.start, span.end, topic_id=span.topic_id)
            for run in runs:
                batch = rows.read(run, span)
                if batch.num_rows:
                    yield batch

    def _fetcher(self) -> RawFetcher:
        return RawFetcher(self._options.connection(), max_bytes=self._options.max_fetch_bytes)

    def _position(self, when: int) -> Position:
        topic = self._options.topic
        with self._fetcher() as fetcher:
            layout = fetcher.layout(topic)
            return Position(topic=topic, topic_id=layout.id, next=fetcher.offsets(topic, when))

    def _partitions(self, start: Position, end: Position) -> list[InputPartition]:
        return [InputPartition(span) for span in ranges(start, end, self._options.max_records_per_task)]


class LogReader(_RangeReader, DataSourceReader):
    """Batch: everything from `start` to the end that the log has when the read is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        start = self._position(start_time(self._options.start))
        return self._partitions(start, self._position(LATEST))


class LogStreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streaming, with admission control and the availableNow trigger."""

    _target: Position | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._position(start_time(self._options.start)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_records_per_batch
        return ReadMaxRows(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._position(LATEST)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = Position.from_json(start)
        latest = self._target or self._position(LATEST)
        max_records = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return admit(begin, latest, max_records).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._position(LATEST).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._partitions(Position.from_json(start), Position.from_json(end))
