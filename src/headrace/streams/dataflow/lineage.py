"""The records behind the rows of a view, by its batch definition: what `why` and `affects` need.

The definition is computed over rows that have one column more, the places of the records they were made
of (`TOPIC:PARTITION:OFFSET`, one in a line). Groups and windows collect those of their members; the row of
a join has those of both sides; a table's row has that of the record that is shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.client import Connection
from headrace.streams.dataflow.definition import PLACE, defined, read_topic, spread, stepped
from headrace.streams.dataflow.graph import Edge, Graph, Node, producer_watermarks
from headrace.streams.engine.projection import Step
from headrace.streams.event_time import NO_WATERMARK
from headrace.streams.operators import (
    AsOfJoin,
    Distinct,
    Group,
    StreamJoin,
    TableJoin,
    WindowNode,
    WindowOperator,
    recompute,
)
from headrace.streams.operators.aggregates.aggregates import Collect

__all__ = ["MOST_RECORDS", "RECORDS", "record_column", "traced_view", "traced_windows"]

RECORDS = "headrace_records"
MOST_RECORDS = 1_000_000  # of one row
_OTHERS, _BUCKET = "headrace_others", "_bucket"


def record_column(topic: str) -> Column:
    """The place of the record that a row was read from."""
    return F.concat(F.lit(f"{topic}:"), F.col("_partition"), F.lit(":"), F.col("_offset"))


def traced_view(
    spark: SparkSession,
    graph: Graph,
    steps: Mapping[int, Sequence[Step]],
    *,
    connection: Connection,
    ends: Mapping[str, Mapping[int, int]],
    watermarks: Mapping[str, int],
) -> DataFrame:
    """The rows of the graph's view as `replayed_view` has them, with the column RECORDS."""
    reached = [watermarks.get(each.spec.topic, NO_WATERMARK) for each in graph.sources]
    by_producer = producer_watermarks(graph, reached)
    made = []
    for source in graph.sources:
        rows = read_topic(spark, source, connection, ends.get(source.spec.topic, {}))
        made.append(rows.withColumn(RECORDS, record_column(source.spec.topic)))
    number = 0
    for node in graph.nodes:
        inputs = []
        for edge in node.edges:
            inputs.append(_stepped(made[edge.producer], steps.get(number, ()), edge))
            number += 1
        made.append(_traced(node, inputs, [by_producer[edge.producer] for edge in node.edges]))
    (view,) = graph.views
    return _stepped(made[view.edge.producer], steps.get(number, ()), view.edge)


def traced_windows(operator: WindowOperator, rows: DataFrame, reached: int) -> DataFrame:
    """The results of windows over rows with RECORDS, and those of their members."""
    collecting = _collecting(operator)
    schema = collecting.result_schema(pa.schema(_arrow_fields(rows)))

    def compute(table: pa.Table) -> pa.Table:
        return recompute(collecting, table.drop_columns([_BUCKET]), reached)

    bucketed = rows.withColumn(_BUCKET, spread(schema, operator.keys)).groupBy(_BUCKET)
    found = bucketed.applyInArrow(compute, from_arrow_schema(schema))
    return found.withColumn(RECORDS, F.array_join(RECORDS, "\n"))


def _stepped(rows: DataFrame, steps: Sequence[Step], edge: Edge) -> DataFrame:
    return stepped(rows, steps, edge, beside=(*PLACE, RECORDS))


@dataclass(frozen=True, slots=True)
class _Wider:
    """A node whose rows have more columns."""

    name: str
    operator: Any
    schema: pa.Schema


def _traced(node: Node, inputs: Sequence[DataFrame], reached: Sequence[int]) -> DataFrame:
    operator = node.operator
    if isinstance(operator, TableJoin | StreamJoin | AsOfJoin):
        return _joined(node, inputs, reached)
    if isinstance(operator, Group):
        return _collected(node, _collecting(operator), inputs, reached)
    if isinstance(operator, WindowNode):
        return _collected(node, replace(operator, operator=_collecting(operator.operator)), inputs, reached)
    if isinstance(operator, Distinct):
        return _distinct(node, operator, inputs[0], reached)
    return defined(node, inputs, reached)  # a row of these is one of its input's, and keeps its columns


def _collecting(operator: Any) -> Any:
    """The same operator, which also collects the records of its members."""
    return replace(operator, aggregates=(*operator.aggregates, (RECORDS, Collect(RECORDS, MOST_RECORDS))))


def _collected(node: Node, operator: Any, inputs: Sequence[DataFrame], reached: Sequence[int]) -> DataFrame:
    edges = tuple(
        replace(edge, schema=edge.schema.append(pa.field(RECORDS, pa.string()))) for edge in node.edges
    )
    wider = replace(node, operator=operator, edges=edges)
    return defined(wider, inputs, reached).withColumn(RECORDS, F.array_join(RECORDS, "\n"))


def _joined(node: Node, inputs: Sequence[DataFrame], reached: Sequence[int]) -> DataFrame:
    left, right = inputs[0], inputs[1].withColumnRenamed(RECORDS, _OTHERS)
    if getattr(node.operator, "how", "") in ("semi", "anti"):
        return defined(node, [left, right], reached)
    more = [pa.field(RECORDS, pa.string()), pa.field(_OTHERS, pa.string())]
    wider: Any = _Wider(node.name, node.operator, pa.schema([*node.schema, *more]))
    joined = defined(wider, [left, right], reached)
    return joined.withColumn(RECORDS, F.concat_ws("\n", RECORDS, _OTHERS)).drop(_OTHERS)


def _distinct(node: Node, operator: Distinct, rows: DataFrame, reached: Sequence[int]) -> DataFrame:
    """Every row that is equal to the one that is shown is behind it."""
    shown = defined(node, [rows.drop(RECORDS)], reached)
    same = F.lit(True)
    for name in operator.columns:
        same = same & F.col(f"shown.`{name}`").eqNullSafe(F.col(f"given.`{name}`"))
    pairs = shown.alias("shown").join(rows.alias("given"), same)
    names = [F.col(f"shown.`{name}`") for name in operator.columns]
    grouped = pairs.groupBy(*names).agg(F.array_join(F.collect_list(f"given.{RECORDS}"), "\n").alias(RECORDS))
    return grouped.select("*", *[F.lit(None).cast("long").alias(name) for name in PLACE])


def _arrow_fields(rows: DataFrame) -> list[pa.Field]:
    from pyspark.sql.pandas.types import to_arrow_schema

    return list(to_arrow_schema(rows.schema))
