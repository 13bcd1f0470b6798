"""A stream read again, in batch, from where its query began up to given offsets: what `verify` needs.

The rows are stamped as the feed stamps them, partition by partition from the beginning,
so that each is late or on time exactly as it was.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.client import Connection
from headrace.streams.engine.packers import RowPacker, view_column
from headrace.streams.engine.plan import ROW_STAMPS, StreamPlan
from headrace.streams.engine.projection import Step, project, projected_fields
from headrace.streams.event_time import NO_WATERMARK
from headrace.streams.feed.options import FeedOptions
from headrace.streams.feed.reader import read_stamped
from headrace.streams.operators import recompute

__all__ = ["replayed_results", "replayed_rows"]


class ReplayReader(DataSourceReader):
    """One task per partition; each reads its partition from where the query began, which may be 0."""

    def __init__(self, plan: StreamPlan, options: FeedOptions, end: Mapping[int, int]) -> None:
        self._plan = plan
        self._options = options
        self._end = dict(end)

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(partition) for partition in sorted(self._end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        packer = RowPacker(self._plan)
        if partition.value is None:
            return
        spec, end = self._plan.spec, {partition.value: self._end[partition.value]}
        for stamped in read_stamped(spec, self._options, start=dict(spec.begins), end=end):
            yield packer.rows(stamped)


def replayed_rows(
    spark: SparkSession,
    plan: StreamPlan,
    number: int,
    steps: Sequence[Step],
    *,
    connection: Connection,
    end: Mapping[int, int],
) -> DataFrame:
    """The rows that one view got from the records before `end`: its columns, and the reserved ones."""
    view = plan.views[number]
    rows = _load(spark, plan, FeedOptions(connection=connection), end)
    projected = project(rows, projected_fields(plan.spec), [(steps, view.columns)])
    kept = projected.where(F.col(view_column(0)).isNotNull())
    return kept.select(*[f"{view_column(0)}.{name}" for name in view.columns], *ROW_STAMPS)


def replayed_results(
    rows: DataFrame, plan: StreamPlan, number: int, schema: pa.Schema, watermark_us: int | None
) -> pa.Table:
    """The results of one windowed view, by the operator's definition, spread over Spark's workers."""
    operator = plan.views[number].operator
    assert operator is not None
    reached = (
        NO_WATERMARK if watermark_us is None else watermark_us
    )  # a view that knows no time has closed none

    def compute(table: pa.Table) -> pa.Table:
        return recompute(operator, table.drop_columns(["_group"]), reached)

    # Spark tells 0.0 from -0.0 when it hashes, the operator does not: such keys stay together.
    floating = any(pa.types.is_floating(schema.field(name).type) for name in operator.keys)
    spread = F.lit(0) if floating or not operator.keys else F.abs(F.hash(*operator.keys)) % plan.buckets
    grouped = rows.withColumn("_group", spread).groupBy("_group")
    return grouped.applyInArrow(compute, from_arrow_schema(schema)).toArrow()


def _load(spark: SparkSession, plan: StreamPlan, options: FeedOptions, end: Mapping[int, int]) -> DataFrame:
    name = f"headrace-replay-{uuid.uuid4().hex}"
    arrow = RowPacker(plan).schema

    class Replay(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return from_arrow_schema(arrow)

        def reader(self, schema: StructType) -> ReplayReader:  # noqa: ARG002
            return ReplayReader(plan, options, end)

    spark.dataSource.register(Replay)
    return spark.read.format(name).load()
