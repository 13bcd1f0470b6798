"""One stream of an application under test: its log is a list, and its query runs in this process."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.app.plan import PlannedStream
from headrace.app.query import StreamSink
from headrace.streams import NO_WATERMARK
from headrace.streams.engine import (
    ALL_VIEWS,
    BlobKind,
    BucketBatch,
    BucketCopy,
    FusedPacker,
    Outgoing,
    RowPacker,
    SpillFiles,
    advance_bucket,
    batch_summary,
    heartbeat_of,
    pack_projected,
    read_messages,
)
from headrace.streams.feed import FeedPosition
from headrace.testing.topic_feed import RUN, RecordList, TopicFeed
from headrace.views import ViewStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StreamRun"]

_CARRIED = SpillFiles()  # one process: no blob goes by a file


class StreamRun:
    """Reads its own log as the feed does, batch by batch, and updates the stream's views."""

    def __init__(
        self,
        app_name: str,
        planned: PlannedStream,
        store: ViewStore,
        records: RecordList,
        now_us: int,
        spark: "SparkSession | None",
    ) -> None:
        self._planned = planned
        self._spec = planned.stream.spec
        self._plan = planned.plan(1)
        self._spark = spark
        self._heartbeat = heartbeat_of(self._plan)
        self.feeds = {
            self._spec.topic: TopicFeed(self._spec, planned.stream.partitions, self._heartbeat, now_us)
        }
        self._copy = BucketCopy([each.new_state() for each in self._plan.stateful.values()], NO_WATERMARK)
        self._batches = 0
        self._sink = StreamSink(
            planned=planned,
            app_name=app_name,
            query_id=RUN,
            stores=_prepared(planned, store),
            records=records,
            commit_progress=lambda _: None,
        )

    @property
    def watermark_us(self) -> int | None:
        return None if self._copy.watermark_us == NO_WATERMARK else self._copy.watermark_us

    @property
    def patience_us(self) -> int:
        """The silence after which every window has closed."""
        return 0 if self._heartbeat is None else self._heartbeat.until_us + self._heartbeat.interval_us

    def step(self, now_us: int) -> None:
        """The micro-batch that is due now, if one is."""
        (feed,) = self.feeds.values()
        following = feed.due(now_us)
        if following is None:
            return
        self._sink(self._advance(feed, following), self._batches)
        self._batches += 1

    def _advance(self, feed: TopicFeed, position: FeedPosition) -> list[Outgoing]:
        """What the query's stage would pass to its sink."""
        batch = BucketBatch()
        for messages in self._messages(feed, position):
            for _, view, kind, blob in read_messages(messages):
                batch.add(view, kind, blob)
        out, _ = advance_bucket(self._plan, self._copy, batch)
        out.append((ALL_VIEWS, BlobKind.MARK, batch_summary(batch, self._copy)))
        return [*batch.passed_on, *out]

    def _messages(self, feed: TopicFeed, position: FeedPosition) -> Iterator[pa.RecordBatch]:
        if not any(view.steps for view in self._planned.views):
            yield from _packed(feed, position, FusedPacker(self._plan, _CARRIED))
            return
        packer = RowPacker(self._plan)
        rows = pa.Table.from_batches(_packed(feed, position, packer), packer.schema)
        yield from pack_projected(self._plan, _CARRIED, self._projected(rows).to_batches())

    def _projected(self, rows: pa.Table) -> pa.Table:
        """What Spark makes of the rows."""
        from headrace.streams.engine import project, projected_fields

        assert self._spark is not None
        views = [(view.steps, view.plan.columns) for view in self._planned.views]
        return project(self._spark.createDataFrame(rows), projected_fields(self._spec), views).toArrow()


def _packed(
    feed: TopicFeed, position: FeedPosition, packer: FusedPacker | RowPacker
) -> Iterator[pa.RecordBatch]:
    for stamped, mark in feed.read(position):
        yield from packer.pack(stamped)
        yield from packer.finish(mark)


def _prepared(planned: PlannedStream, store: ViewStore) -> dict[str, ViewStore]:
    """The store, ready for every view; a derived topic of rows is records and no view."""
    stores = {}
    for view in planned.views:
        if view.view.topic is None or view.plan.operator is not None:
            store.prepare(view.schema)
            store.begin(view.view.name, RUN, schema=view.schema)
            stores[view.view.name] = store
    return stores
