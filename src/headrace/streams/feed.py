"""The feed: a topic as stamped rows for Spark's stateful stages, one task per partition and batch.

Unlike the plain format "headrace", the feed gives every row its event time and its
partition's watermark, ends each task with a mark, runs empty batches while input is
silent, and leaves the shape of its output to a packer, since what follows it wants
few fat rows rather than many thin ones.

Spark starts a process beside the driver that plans batches and reads nothing: what only
reading needs is imported there.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.client import RawFetcher
from headrace.streams.event_time import Mark
from headrace.streams.feed_planner import FeedPlanner
from headrace.streams.feed_positions import FeedPosition, FeedRange, feed_ranges
from headrace.streams.folded import Folded
from headrace.streams.options import FeedOptions
from headrace.streams.positions import Position
from headrace.streams.spec import StreamSpec

if TYPE_CHECKING:
    from headrace.streams.stamping import Stamped

__all__ = ["FeedOptions", "FeedReader", "Packer", "feed_source"]


class Packer(Protocol):
    """Turns what one task read into what Spark gets; one is made for each task.

    `schema`, in Spark's words or Arrow's, is that of every batch it gives.
    """

    @property
    def schema(self) -> str | pa.Schema: ...

    def pack(self, stamped: "Stamped") -> Iterator[pa.RecordBatch]:
        """Called with each run of rows, in the order of offsets."""

    def finish(self, mark: Mark) -> Iterator[pa.RecordBatch]:
        """Called once, after the last run."""


class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader; in the planner's process and in the workers it is a thing of its own.

    Connections are opened where they are used. With the availableNow trigger there are
    no heartbeats: such a query ends at the end of the log.
    """

    def __init__(
        self,
        spec: StreamSpec,
        options: FeedOptions,
        packer_factory: Folded[Callable[[], Packer]],
    ) -> None:
        self._spec = spec
        self._options = options
        self._packer_factory = packer_factory
        self._kept_planner: FeedPlanner | None = None
        self._target: Position | None = None

    # --- beside the driver --------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        return self._planner.first().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_records_per_batch:
            return ReadMaxRows(self._options.max_records_per_batch)
        limit = self._options.max_bytes_per_batch
        return ReadMaxBytes(limit) if limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._planner.latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        begin = FeedPosition.from_json(start)
        unlimited = isinstance(limit, ReadAllAvailable)
        following = self._planner.following(
            begin,
            self._target or self._planner.latest(),
            max_records=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            max_bytes=None if unlimited else self._options.max_bytes_per_batch or None,
            beating=self._target is None,
        )
        return start if following is begin else following.to_json()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._planner.latest().to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        return [InputPartition(span) for span in feed_ranges(FeedPosition.from_json(end))]

    def stop(self) -> None:
        if self._kept_planner is not None:
            self._kept_planner.close()

    @property
    def _planner(self) -> FeedPlanner:
        if self._kept_planner is None:
            self._kept_planner = FeedPlanner(self._spec, self._options)
        return self._kept_planner

    # --- in a worker --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One partition's part of a micro-batch, as the packer makes it."""
        span: FeedRange | None = partition.value
        if span is None:  # Spark's way of saying that there is nothing to read
            return
        from headrace.streams.reading import RangeReading

        packer = self._packer_factory.open()()
        with RawFetcher(self._options.connection, max_bytes=self._options.max_fetch_bytes) as fetcher:
            reading = RangeReading(fetcher, self._spec, span)
            for stamped in reading:
                yield from packer.pack(stamped)
        yield from packer.finish(reading.mark())


def feed_source(
    name: str,
    spec: StreamSpec,
    options: FeedOptions,
    packer_factory: Callable[[], Packer],
) -> type[DataSource]:
    """A data source to register with Spark under `name`; Spark ships it to where it is needed."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = packer_factory().schema
    spark_schema = schema if isinstance(schema, str) else from_arrow_schema(schema)
    folded = Folded(packer_factory)

    class Feed(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str | StructType:
            return spark_schema

        def streamReader(self, schema: StructType) -> FeedReader:  # noqa: ARG002, N802
            return FeedReader(spec, options, folded)

    return Feed
