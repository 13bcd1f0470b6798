"""The feed: topics as stamped rows for Spark's stateful stages, one task per partition and batch.

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
from pyspark.sql.types import StructType

from headrace.client import RawFetcher
from headrace.streams.event_time import Mark
from headrace.streams.feed.captured_columns import column_readers
from headrace.streams.feed.cuts import CutReader
from headrace.streams.feed.joint import JointPlanner, JointPosition
from headrace.streams.feed.options import FeedOptions
from headrace.streams.feed.planner import FeedPlanner
from headrace.streams.feed.positions import FeedRange
from headrace.streams.offsets import TopicPosition
from headrace.streams.spark.pickled import Pickled
from headrace.streams.spark.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from headrace.streams.spec import StreamSpec

if TYPE_CHECKING:
    from headrace.streams.feed.stamping import Stamped

__all__ = ["FeedOptions", "FeedReader", "Packer", "feed_source"]


class Packer(Protocol):
    """Turns what one task read of one input into what Spark gets; one is made for each task.

    `schema`, in Spark's words or Arrow's, is that of every batch it gives.
    """

    @property
    def schema(self) -> str | pa.Schema: ...

    def pack(self, stamped: "Stamped") -> Iterator[pa.RecordBatch]:
        """Called with each run of rows, in the order of offsets."""

    def finish(self, mark: Mark) -> Iterator[pa.RecordBatch]:
        """Called once, after the last run."""


class FeedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader of a query's topics; in the planner's process and in workers a thing of its own.

    Connections are opened where they are used. With the availableNow trigger there are
    no heartbeats: such a query ends at the end of the log.
    """

    def __init__(
        self,
        specs: Sequence[StreamSpec],
        options: FeedOptions,
        packer_factory: Pickled[Callable[[int], Packer]],
    ) -> None:
        self._specs = tuple(specs)
        self._options = options
        self._packer_factory = packer_factory
        self._kept_planner: JointPlanner | None = None
        self._target: Sequence[TopicPosition] | None = None

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
        begin = JointPosition.from_json(start)
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
        latest = [each.to_json() for each in self._planner.latest()]
        return latest[0] if len(latest) == 1 else {"inputs": latest}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        return [InputPartition(span) for span in JointPosition.from_json(end).ranges()]

    def stop(self) -> None:
        if self._kept_planner is not None:
            self._kept_planner.close()

    @property
    def _planner(self) -> JointPlanner:
        if self._kept_planner is None:
            topics = dict.fromkeys(each.transactions for each in self._specs if each.transactions)
            self._kept_planner = JointPlanner(
                [FeedPlanner(each, self._options) for each in self._specs],
                [CutReader(RawFetcher(self._options.connection), topic) for topic in topics],
                column_readers(self._specs, self._options.connection),
            )
        return self._kept_planner

    # --- in a worker --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One partition's part of a micro-batch, as the packer makes it."""
        work: tuple[int, FeedRange] | None = partition.value
        if work is None:  # Spark's way of saying that there is nothing to read
            return
        number, span = work
        from headrace.streams.feed.reader import RangeReading

        packer = self._packer_factory.open()(number)
        with RawFetcher(self._options.connection, max_bytes=self._options.max_fetch_bytes) as fetcher:
            reading = RangeReading(fetcher, self._specs[number], span)
            for stamped in reading:
                yield from packer.pack(stamped)
        yield from packer.finish(reading.mark())


def feed_source(
    name: str,
    specs: Sequence[StreamSpec],
    options: FeedOptions,
    packer_factory: Callable[[int], Packer],
) -> type[DataSource]:
    """A data source to register with Spark under `name`; Spark ships it to where it is needed.

    `packer_factory` makes the packer of a task, given the number of the input that it reads; all
    of them have the same schema.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = packer_factory(0).schema
    spark_schema = schema if isinstance(schema, str) else from_arrow_schema(schema)
    pickled = Pickled(packer_factory)

    class Feed(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str | StructType:
            return spark_schema

        def streamReader(self, schema: StructType) -> FeedReader:  # noqa: ARG002, N802
            return FeedReader(specs, options, pickled)

    return Feed
