"""One stream of an application under test: a log in a list, and a query that runs in this process."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from headrace.app.collecting import BatchOutput
from headrace.app.plans import PlannedStream
from headrace.app.sink import StreamSink
from headrace.errors import ConfigError
from headrace.records import Record, encode_batch, stamp
from headrace.records.columns import lay_out
from headrace.streams.engine.bucket import BucketBatch, advance_bucket, batch_summary
from headrace.streams.engine.bucket_log import BucketCopy
from headrace.streams.engine.heartbeats import heartbeat_of
from headrace.streams.engine.messages import ALL_VIEWS, Kind, Outgoing, read_messages
from headrace.streams.engine.packers import FusedPacker, RowPacker, pack_projected
from headrace.streams.engine.parcels import Parcels
from headrace.streams.event_time import NO_WATERMARK, Mark, PartitionTime
from headrace.streams.feed_positions import (
    FeedPosition,
    FeedRange,
    SilenceMeter,
    feed_ranges,
    next_position,
)
from headrace.streams.positions import Position
from headrace.streams.spec import PROCESSING_TIME
from headrace.streams.stamping import Stamped, Stamper
from headrace.testing.partitioning import partition_of
from headrace.views import OutputRecord, ViewStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["RecordList", "StreamRun"]

_TOPIC_ID, _RUN = UUID(int=1), "test"
_CARRIED = Parcels()  # one process: no blob goes by a file


class RecordList:
    """Records written to topics, by topic, in order."""

    def __init__(self) -> None:
        self._records: list[OutputRecord] = []
        self._taken = 0

    def write(self, batch_id: int, records: Iterable[OutputRecord]) -> bool:  # noqa: ARG002
        self._records.extend(records)
        return True

    def take_new(self) -> list[OutputRecord]:
        """Those that were written since this was last called."""
        found = self._records[self._taken :]
        self._taken = len(self._records)
        return found

    def of(self, topic: str) -> list[OutputRecord]:
        return [record for record in self._records if record.topic == topic]


class StreamRun:
    """Reads its own little log as the feed does, batch after batch, and advances the stream's views."""

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
        self._log: dict[int, list[Record]] = {each: [] for each in range(planned.stream.partitions)}
        self._position = FeedPosition.first(self._end(), _RUN)
        self._times: dict[int, PartitionTime] = dict(self._position.times)
        self._meter = SilenceMeter()
        self._meter.observe(self._position, self._end(), now_us)
        self._copy = BucketCopy([each.new_state() for each in self._plan.operators], NO_WATERMARK)
        self._batches = 0
        self._sink = StreamSink(
            planned=planned,
            app_name=app_name,
            query_id=_RUN,
            stores=_prepared(planned, store),
            records=records,
            commit_progress=self._note,
        )

    @property
    def watermark_us(self) -> int | None:
        return None if self._copy.watermark_us == NO_WATERMARK else self._copy.watermark_us

    @property
    def patience_us(self) -> int:
        """The silence after which no window is open any more."""
        return 0 if self._heartbeat is None else self._heartbeat.until_us + self._heartbeat.interval_us

    def append(
        self,
        value: Mapping[str, Any] | bytes | None,
        *,
        partition: int,
        key: str | bytes | None,
        moment_us: int,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> None:
        if partition not in self._log:
            raise ConfigError(
                f"{self._spec.topic} has partitions 0 to {len(self._log) - 1}, not {partition}; "
                "declare more with app.stream(…, partitions=…)"
            )
        records = self._log[partition]
        records.append(
            Record(
                len(records),
                moment_us // 1000,
                key.encode() if isinstance(key, str) else key,
                json.dumps(value).encode() if isinstance(value, Mapping) else value,
                headers,
            )
        )

    def append_written(self, record: OutputRecord, now_us: int) -> None:
        """A record that the application wrote to this stream's topic, where its key says."""
        partition = record.partition
        if partition is None:
            partition = 0 if record.key is None else partition_of(record.key, len(self._log))
        self.append(
            record.value, partition=partition, key=record.key, moment_us=now_us, headers=record.headers
        )

    def step(self, now_us: int) -> None:
        """The micro-batch that is due now, if one is."""
        latest = self._end()
        following = next_position(
            self._position,
            self._times,
            latest,
            self._meter.observe(self._position, latest, now_us),
            admitted=latest,
            idle_after_us=self._spec.idle_after_us,
            heartbeat=self._heartbeat,
            now_us=now_us if self._spec.event_time == PROCESSING_TIME else 0,
        )
        if following == self._position:
            return
        self._position = following
        self._sink(self._advance(following), self._batches)
        self._batches += 1

    def _end(self) -> Position:
        ends = {partition: len(records) for partition, records in self._log.items()}
        return Position(topic=self._spec.topic, topic_id=_TOPIC_ID, next=ends)

    def _note(self, output: BatchOutput) -> None:
        self._times.update(output.times)

    def _advance(self, position: FeedPosition) -> list[Outgoing]:
        """What the query's stage would give to its sink."""
        batch = BucketBatch()
        for messages in self._messages(position):
            for _, view, kind, blob in read_messages(messages):
                batch.add(view, kind, blob)
        out, _ = advance_bucket(self._plan, self._copy, batch)
        out.append((ALL_VIEWS, Kind.MARK, batch_summary(batch, self._copy)))
        return [*batch.passed_on, *out]

    def _messages(self, position: FeedPosition) -> Iterator[pa.RecordBatch]:
        if not any(view.steps for view in self._planned.views):
            yield from self._packed(position, FusedPacker(self._plan, _CARRIED))
            return
        packer = RowPacker(self._plan)
        rows = pa.Table.from_batches(self._packed(position, packer), packer.schema)
        yield from pack_projected(self._plan, _CARRIED, self._projected(rows).to_batches())

    def _packed(self, position: FeedPosition, packer: FusedPacker | RowPacker) -> Iterator[pa.RecordBatch]:
        for span in feed_ranges(position):
            stamper = Stamper(self._spec, span.partition, span.time, now_us=span.now_us)
            stamped = stamper.stamp(lay_out(self._batch(span)))
            yield from packer.pack(stamped)
            yield from packer.finish(self._mark(span, stamper.time, stamped))

    def _batch(self, span: FeedRange) -> bytes | bytearray:
        """The range as the log has it."""
        records = self._log[span.partition][span.start : span.end]
        if not records:
            return b""
        batch = encode_batch(records)
        stamp(batch, 0, span.start, 0)
        return batch

    def _projected(self, rows: pa.Table) -> pa.Table:
        """What Spark makes of the rows."""
        from headrace.streams.engine.projection import project, projected_fields

        assert self._spark is not None
        views = [(view.steps, view.plan.columns) for view in self._planned.views]
        return project(self._spark.createDataFrame(rows), projected_fields(self._spec), views).toArrow()

    def _mark(self, span: FeedRange, time: PartitionTime, stamped: Stamped) -> Mark:
        return Mark(
            topic=span.topic,
            run=span.run,
            partition=span.partition,
            next=span.end,
            time=time,
            times=span.times,
            lateness_us=self._spec.lateness_us,
            idle=span.idle,
            silence_us=span.silence_us,
            records=stamped.records,
            rows=stamped.rows.num_rows,
            dead=stamped.dead_count,
            repeated=stamped.repeated,
        )


def _prepared(planned: PlannedStream, store: ViewStore) -> dict[str, ViewStore]:
    """The store, ready for every view; a derived topic of rows is records and no view."""
    stores = {}
    for view in planned.views:
        if view.view.topic is None or view.plan.operator is not None:
            store.prepare(view.schema)
            store.begin(view.view.name, _RUN, schema=view.schema)
            stores[view.view.name] = store
    return stores
