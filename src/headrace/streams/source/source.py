"""The log as a Python data source of Spark, for streaming and for batch.

Spark asks the stream reader, in a process beside the driver, where the log ends
(`latestOffset`) and into which ranges to cut what is new (`partitions`); `read` then
runs in the workers, each on a connection of its own, and yields Arrow batches. All
positions live in Spark's checkpoint: the source itself keeps nothing.
"""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headrace.client import LATEST, RawFetcher
from headrace.streams.feed.first_positions import admitted, start_position
from headrace.streams.offsets import Range, TopicPosition, ranges
from headrace.streams.source.options import SourceOptions, read_options
from headrace.streams.source.row_reader import RAW_SCHEMA, RowReader
from headrace.streams.spark.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from headrace.streams.start import Start, parse_start

__all__ = ["SOURCE_NAME", "LogSource", "is_log_source", "register", "register_own"]

SOURCE_NAME = "headrace"
_OWN_PREFIX = f"{SOURCE_NAME}-log-"


def register(spark: SparkSession) -> None:
    """Makes the format "headrace" known to a session; harmless when repeated."""
    spark.dataSource.register(LogSource)


def register_own(spark: SparkSession) -> str:
    """Makes it known under a name that no session has, and gives the name.

    Spark refuses one that another session of the same context has.
    """
    own = f"{_OWN_PREFIX}{uuid.uuid4().hex}"

    class OwnSource(LogSource):
        @classmethod
        def name(cls) -> str:
            return own

    spark.dataSource.register(OwnSource)
    return own


def is_log_source(name: str) -> bool:
    """Whether a format of this name reads the log: the public one, or one made by `register_own`."""
    return name == SOURCE_NAME or name.startswith(_OWN_PREFIX)


class LogSource(DataSource):
    """A topic as a table: the columns of the schema that is given, or the raw records without one."""

    @classmethod
    def name(cls) -> str:
        return SOURCE_NAME

    def schema(self) -> StructType:
        return RAW_SCHEMA

    def reader(self, schema: StructType) -> "LogReader":
        return LogReader(read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> "LogStreamReader":  # noqa: N802 - Spark's name
        return LogStreamReader(read_options(self.options), schema)


class _RangeReader:
    """What both readers share: positions on the log, and reading one range in a worker."""

    _kept_fetcher: RawFetcher | None = None

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

    @property
    def _planning(self) -> RawFetcher:
        """The connection of the process that plans, kept as long as it runs."""
        if self._kept_fetcher is None:
            self._kept_fetcher = self._fetcher()
        return self._kept_fetcher

    def _position(self, start: Start) -> TopicPosition:
        return start_position(self._planning, self._options.topic, start)

    def _partitions(self, start: TopicPosition, end: TopicPosition) -> list[InputPartition]:
        return [InputPartition(span) for span in ranges(start, end, self._options.max_records_per_task)]


class LogReader(_RangeReader, DataSourceReader):
    """Batch: everything from `start` to the end that the log has when the read is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        start = self._position(parse_start(self._options.start))
        return self._partitions(start, self._position(Start(LATEST)))


class LogStreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streaming, with admission control and the availableNow trigger."""

    _target: TopicPosition | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._position(parse_start(self._options.start)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_records_per_batch:
            return ReadMaxRows(self._options.max_records_per_batch)
        limit = self._options.max_bytes_per_batch
        return ReadMaxBytes(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._position(Start(LATEST))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = TopicPosition.from_json(start)
        latest = self._target or self._position(Start(LATEST))
        max_bytes = None if isinstance(limit, ReadAllAvailable) else self._options.max_bytes_per_batch or None
        max_records = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return admitted(self._planning, begin, latest, max_records, max_bytes).to_json()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._position(Start(LATEST)).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._partitions(TopicPosition.from_json(start), TopicPosition.from_json(end))

    def stop(self) -> None:
        if self._kept_fetcher is not None:
            self._kept_fetcher.close()
