"""The batch definition of a dataflow: what its view is, computed from the records by Spark's own SQL.

It shares with the running query how records become rows, and nothing else: tables, joins, groups and
windows are defined here by what the documentation says of them, not by how they are kept. What was late is
in the stamps of the records; what a stream's join had to show depends on how far event time had come,
which is kept with the view (`Reflected.watermarks`).
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headrace.client import Connection
from headrace.errors import RequestError
from headrace.streams.dataflow.graph import Edge, Graph, Node, TopicSource, producer_watermarks
from headrace.streams.dataflow.history_definition import history_rows
from headrace.streams.dataflow.row_definitions import (
    deduplicated_rows,
    distinct_rows,
    exploded_rows,
    first_rows,
    last_rows,
    settled_rows,
    top_rows,
    united_rows,
)
from headrace.streams.engine.projection import Step, project_producers
from headrace.streams.event_time import NO_WATERMARK
from headrace.streams.feed.options import FeedOptions
from headrace.streams.feed.reader import read_stamped
from headrace.streams.operators import (
    AsOfJoin,
    Dedup,
    Distinct,
    Explode,
    FirstRow,
    Group,
    LastRow,
    LatestJoin,
    Settled,
    StreamJoin,
    StreamVersions,
    TableHistory,
    TableJoin,
    Top,
    Union,
    Upserts,
    WholeRows,
    WindowNode,
    recompute,
)
from headrace.streams.operators.aggregates.aggregates import Sum
from headrace.streams.operators.aggregates.definition import aggregate_column, sums_fit
from headrace.streams.spec import DELETED, RESERVED, UNCHANGED, StreamSpec, rows_schema

__all__ = [
    "PLACE",
    "defined",
    "read_topic",
    "replayed_view",
    "spread",
    "stepped",
    "table_rows",
    "why_not_replayed",
]

PLACE = ("_event_time", "_partition", "_offset", "_watermark")
_ORDER = PLACE[:3]
_STAMPS = pa.schema(
    [
        ("_event_time", pa.int64()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_watermark", pa.int64()),
    ]
)
_ROWS, _EDGE, _BUCKET = "_rows", "_edge", "_bucket"
_DEFINED = (
    Upserts,
    TableJoin,
    Group,
    StreamJoin,
    AsOfJoin,
    WindowNode,
    Distinct,
    Top,
    Dedup,
    Union,
    Explode,
    FirstRow,
    LastRow,
    Settled,
    StreamVersions,
)
_GROUPS = 64  # of keys: one is held in memory at a time


def why_not_replayed(graph: Graph) -> str | None:
    """Why a dataflow has no batch definition yet; None if it has one."""
    for node in graph.nodes:
        is_latest = isinstance(node.operator, AsOfJoin) and node.operator.mode == "latest"
        if is_latest or isinstance(node.operator, LatestJoin):
            return f"{node.name!r} depends on which topic was read first, and not on the log alone"
        if not isinstance(node.operator, _DEFINED):
            return f"{node.name!r} has no batch definition yet"
    return None


def replayed_view(
    spark: SparkSession,
    graph: Graph,
    steps: Mapping[int, Sequence[Step]],
    *,
    connection: Connection,
    ends: Mapping[str, Mapping[int, int]],
    watermarks: Mapping[str, int],
) -> DataFrame:
    """The rows of the graph's view over the records before `ends`, by topic and partition.

    `watermarks` are those that the query had reached, by topic. Beside its columns, a stream's row has
    its place in time.
    """
    reached = [watermarks.get(each.spec.topic, NO_WATERMARK) for each in graph.sources]
    by_producer = producer_watermarks(graph, reached)
    made = [read_topic(spark, each, connection, ends.get(each.spec.topic, {})) for each in graph.sources]
    number = 0
    for node in graph.nodes:
        inputs = []
        for edge in node.edges:
            inputs.append(stepped(made[edge.producer], steps.get(number, ()), edge))
            number += 1
        made.append(defined(node, inputs, [by_producer[edge.producer] for edge in node.edges]))
    (view,) = graph.views
    return stepped(made[view.edge.producer], steps.get(number, ()), view.edge)


def table_rows(
    spark: SparkSession,
    spec: StreamSpec,
    *,
    connection: Connection,
    ends: Mapping[int, int],
    as_of_us: int | None = None,
) -> DataFrame:
    """The rows of a table over the records before `ends`; with `as_of_us`, those valid at that time."""
    own = [each for each in rows_schema(spec) if each.name not in RESERVED.names]
    rows = read_topic(spark, TopicSource(spec=spec, schema=pa.schema(own)), connection, ends)
    if as_of_us is None:
        return _newest_rows(Upserts(spec.table_key), rows).drop(*PLACE)
    valid = _whole(spec.table_key, rows).where(F.col("_event_time") <= as_of_us)
    last = Window.partitionBy(*spec.table_key).orderBy(*(F.desc(name) for name in _ORDER))
    newest = valid.withColumn("_n", F.row_number().over(last)).where("_n = 1")
    return newest.where(~F.col(DELETED)).drop("_n", DELETED, *PLACE)


# --- operators ----------------------------------------------------------------------------------


def defined(node: Node, inputs: Sequence[DataFrame], reached: Sequence[int]) -> DataFrame:
    """What an operator makes of its inputs, whose watermarks have come so far."""
    operator = node.operator
    if isinstance(operator, WholeRows):
        return _whole(operator.key, inputs[0])
    if isinstance(operator, TableHistory):
        versions = _whole(operator.key, inputs[0])
        return _without_place(history_rows(operator, versions, reached[0], node.schema.names))
    if isinstance(operator, Upserts):
        return _newest_rows(operator, inputs[0])
    if isinstance(operator, TableJoin):
        return _joined(operator, node, *inputs)
    if isinstance(operator, Group):
        return _grouped(operator, node, inputs[0])
    if isinstance(operator, StreamJoin):
        return _paired(operator, node, (inputs[0], inputs[1]), reached)
    if isinstance(operator, AsOfJoin):
        return _looked_up(operator, node, (inputs[0], inputs[1]), reached[1])
    if isinstance(operator, WindowNode):
        return _windowed(operator, node, inputs[0], reached[0])
    if isinstance(operator, Distinct):
        return _without_place(distinct_rows(operator, inputs[0]))
    if isinstance(operator, Top):
        return _without_place(top_rows(operator, inputs[0], node.schema.names))
    if isinstance(operator, Dedup):
        return deduplicated_rows(operator, inputs[0], reached[0])
    if isinstance(operator, Union):
        return united_rows(operator, inputs)
    if isinstance(operator, Settled):
        return settled_rows(operator, inputs[0], reached[0])
    if isinstance(operator, StreamVersions):
        return inputs[0].withColumn(DELETED, F.lit(False))
    if isinstance(operator, Explode):
        return exploded_rows(operator, inputs[0])
    if isinstance(operator, FirstRow):
        return _without_place(first_rows(operator, inputs[0], node.schema.names))
    if isinstance(operator, LastRow):
        last = last_rows(operator, inputs[0])
        return _without_place(last) if operator.as_table else last
    raise RequestError(f"{node.name!r} has no batch definition yet")


def _newest_rows(operator: Upserts, rows: DataFrame) -> DataFrame:
    """Of each key the last row of its partition; of several partitions' the one valid from latest."""
    last = Window.partitionBy(*operator.key, "_partition").orderBy(F.desc("_offset"))
    newest = Window.partitionBy(*operator.key).orderBy(F.desc("_event_time"), F.desc("_partition"))
    rows = _whole(operator.key, rows)
    of_partition = rows.withColumn("_n", F.row_number().over(last)).where("_n = 1")
    shown = of_partition.withColumn("_n", F.row_number().over(newest)).where("_n = 1")
    return _without_place(shown.where(~F.col(DELETED)).drop("_n", DELETED))


def _whole(key: Sequence[str], rows: DataFrame) -> DataFrame:
    """The rows of changes, with the values of fields that a change left as they were."""
    if UNCHANGED not in rows.columns:
        return rows
    so_far = (
        Window.partitionBy(*key, "_partition").orderBy("_offset").rowsBetween(Window.unboundedPreceding, 0)
    )
    names = [name for name in rows.columns if not name.startswith("_")]
    for number, name in enumerate(names):
        octet = F.conv(F.hex(F.substring(UNCHANGED, number // 8 + 1, 1)), 16, 10).cast("int")
        kept = F.coalesce(octet.bitwiseAND(1 << number % 8) != 0, F.lit(False))
        told = F.when(~kept, F.struct(F.col(name).alias("value")))
        rows = rows.withColumn(name, F.last(told, ignorenulls=True).over(so_far)["value"])
    return rows.drop(UNCHANGED)


def _joined(operator: TableJoin, node: Node, left: DataFrame, right: DataFrame) -> DataFrame:
    """SQL's join: nulls match nothing, and a key column that both sides call alike is there once."""
    left, right = left.drop(*PLACE), right.drop(*PLACE)
    kinds = {"semi": "left_semi", "anti": "left_anti", "full": "full_outer"}
    joined = left.join(_right(right), _same_key(operator), kinds.get(operator.how, operator.how))
    if operator.how in ("semi", "anti"):
        return _without_place(joined)
    columns = [_join_column(operator, name, left.columns) for name in node.schema.names]
    return _without_place(joined.select(*columns))


def _paired(
    operator: StreamJoin, node: Node, inputs: tuple[DataFrame, DataFrame], reached: Sequence[int]
) -> DataFrame:
    """SQL's join of rows close enough in time, without those that were too late.

    A row without partner is there once the other stream's watermark is past the last time at which one
    could have come. A pair happened when its left row did.
    """
    left, right = (rows.where(_in_time(operator.correct_for_us)) for rows in inputs)
    at, other_at = F.col("_event_time"), F.col("_right__event_time")
    close = (other_at >= at - operator.before_us) & (other_at <= at + operator.after_us)
    kinds = {"full": "full_outer"}
    joined = left.join(_right(right), _same_key(operator) & close, kinds.get(operator.how, operator.how))
    has_left, has_right = F.col("_offset").isNotNull(), F.col("_right__offset").isNotNull()
    joined = joined.where(
        (has_left & has_right)
        | (has_left & (at < F.lit(_less(reached[1], operator.after_us))))
        | (has_right & (other_at < F.lit(_less(reached[0], operator.before_us))))
    )
    columns = [_join_column(operator, name, left.columns) for name in node.schema.names]
    places = [F.when(has_left, F.col(name)).otherwise(F.col(f"_right_{name}")).alias(name) for name in PLACE]
    return joined.select(*columns, *places)


def _looked_up(
    operator: AsOfJoin, node: Node, inputs: tuple[DataFrame, DataFrame], reached: int
) -> DataFrame:
    """Each event that the table's watermark has passed, with the newest version valid at its time.

    A version that came late is not there for events before its watermark, but for the time in which they
    are corrected.
    """
    events, versions = inputs
    if operator.kept_us is not None:
        events, versions = (rows.where(_in_time(operator.kept_us)) for rows in (events, versions))
    events = events.where(F.col("_event_time") < F.lit(reached)).withColumn(
        "_event", F.monotonically_increasing_id()
    )
    known_from = F.col("_right__watermark") - operator.correct_for_us
    is_known = F.col("_right__watermark").isNull() | (known_from <= F.col("_event_time"))
    is_valid = F.col("_right__event_time") <= F.col("_event_time")
    others = _right(versions)
    found = events.join(others, _same_key(operator) & is_valid & is_known, "left")
    order = F.struct(*[f"_right_{name}" for name in _ORDER])
    is_one = F.col("_right__offset").isNotNull()
    version = F.struct(*[F.col(f"`{name}`") for name in others.columns])
    grouped = found.groupBy("_event").agg(
        F.first(F.struct(*[F.col(f"`{name}`") for name in events.columns])).alias("_row"),
        F.max_by(version, F.when(is_one, order)).alias("_newest"),
    )
    is_there = F.col("_newest").isNotNull() & ~F.col(f"_newest._right_{DELETED}")
    if operator.how == "inner":
        grouped = grouped.where(is_there)
    given = [F.when(is_there, F.col(f"_newest.`{name}`")).alias(name) for name in others.columns]
    own = [F.col(f"_row.`{name}`").alias(name) for name in events.columns]
    columns = [_join_column(operator, name, events.columns) for name in node.schema.names]
    return grouped.select(*own, *given).select(*columns, *PLACE)


def _right(rows: DataFrame) -> DataFrame:
    return rows.toDF(*[f"_right_{name}" for name in rows.columns])


def _same_key(operator: TableJoin | StreamJoin | AsOfJoin) -> Column:
    condition = F.lit(True)
    for one, other in zip(operator.left_on, operator.right_on, strict=True):
        condition = condition & (F.col(f"`{one}`") == F.col(f"`_right_{other}`"))
    return condition


def _in_time(within_us: int) -> Column:
    """Whether a row came no later than this behind its partition's watermark."""
    watermark = F.col("_watermark")
    return watermark.isNull() | (watermark - F.lit(within_us) <= F.col("_event_time"))


def _less(watermark: int, us: int) -> int:
    return max(watermark - us, NO_WATERMARK)


def _join_column(operator: TableJoin | StreamJoin | AsOfJoin, name: str, left: Sequence[str]) -> Column:
    new = dict(operator.right_names)
    if name not in left:
        old = {given: own for own, given in new.items()}
        return F.col(f"_right_{old.get(name, name)}").alias(name)
    pair = dict(zip(operator.left_on, operator.right_on, strict=True)).get(name)
    if pair is None or new.get(pair, pair) != name:
        return F.col(f"`{name}`")
    return F.coalesce(F.col(f"`{name}`"), F.col(f"`_right_{pair}`")).alias(name)


def _grouped(operator: Group, node: Node, rows: DataFrame) -> DataFrame:
    """The aggregates of each group, by their definition, spread over Spark's workers."""
    schema = node.schema
    keys, aggregates = operator.keys, operator.aggregates

    def compute(table: pa.Table) -> pa.Table:
        table = _in_order(operator, table).combine_chunks()
        members = list(_members(table, keys).values())
        fits = [True] * len(members)
        for _, each in aggregates:
            if isinstance(each, Sum):
                fits = [a and b for a, b in zip(fits, sums_fit(each, table, members), strict=True)]
        members = [each for each, fit in zip(members, fits, strict=True) if fit]
        first = pa.array([each[0] for each in members], pa.int64())
        columns = [table[name].combine_chunks().take(first).cast(schema.field(name).type) for name in keys]
        columns += [
            aggregate_column(each, table, members, schema.field(name).type) for name, each in aggregates
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    bucketed = rows.withColumn(_BUCKET, spread(schema, keys)).groupBy(_BUCKET)
    return _without_place(bucketed.applyInArrow(compute, from_arrow_schema(schema)))


def _in_order(operator: Group, table: pa.Table) -> pa.Table:
    """Rows by their place in time; of a table, by its key and then by what is aggregated, nulls first."""
    if operator.order is None:
        return table.sort_by([(name, "ascending") for name in _ORDER])
    read = [name for _, each in operator.aggregates for name in each.columns()]
    names = dict.fromkeys([*operator.order, *read])
    columns = [
        table[each].to_pylist() for each in names if not pa.types.is_nested(table.schema.field(each).type)
    ]
    keys = [tuple(map(_sortable, row)) for row in zip(*columns, strict=True)]
    return table.take(pa.array(sorted(range(len(keys)), key=keys.__getitem__), pa.int64())) if keys else table


def _sortable(value: Any) -> tuple[bool, bool, Any]:
    """Nulls first, NaN last."""
    is_nan = value != value
    return value is not None, is_nan, 0 if value is None or is_nan else value


def _windowed(operator: WindowNode, node: Node, rows: DataFrame, reached: int) -> DataFrame:
    """The results of windows, by their definition, as far as they are published."""
    windows = operator.operator
    schema = windows.result_schema(node.edges[0].schema)

    def compute(table: pa.Table) -> pa.Table:
        return recompute(windows, table.drop_columns([_BUCKET]), reached)

    bucketed = rows.withColumn(_BUCKET, spread(schema, windows.keys)).groupBy(_BUCKET)
    found = bucketed.applyInArrow(compute, from_arrow_schema(schema))
    if not operator.is_sliding:
        return _without_place(found)
    return found.withColumns({name: F.lit(None).cast("long") for name in PLACE if name not in schema.names})


def spread(schema: pa.Schema, keys: Sequence[str]) -> Column:
    """The group of a row by its key; Spark hashes 0.0 and -0.0 differently, so such keys stay together."""
    floating = any(pa.types.is_floating(schema.field(name).type) for name in keys)
    return F.lit(0) if floating or not keys else F.abs(F.hash(*keys)) % _GROUPS


def _members(table: pa.Table, keys: Sequence[str]) -> dict[str, list[int]]:
    """The rows of each group, in their order; nulls are a key, and so are NaN and both zeros."""
    listed = zip(*(table[name].to_pylist() for name in keys), strict=True) if keys else iter(())
    named = [repr([_plain(each) for each in row]) for row in listed] if keys else [""] * table.num_rows
    found: dict[str, list[int]] = {}
    for name, rows in groupby(range(table.num_rows), key=named.__getitem__):
        found.setdefault(name, []).extend(rows)
    return found


def _plain(value: object) -> object:
    return 0.0 if isinstance(value, float) and value == 0 else value


# --- rows ---------------------------------------------------------------------------------------


def _without_place(rows: DataFrame) -> DataFrame:
    """Rows of a table, whose place in time means nothing."""
    columns = [F.lit(None).cast("long").alias(name) for name in PLACE]
    return rows.drop(*PLACE).select("*", *columns)


def stepped(
    rows: DataFrame, steps: Sequence[Step], edge: Edge, *, beside: Sequence[str] = PLACE
) -> DataFrame:
    """Rows after a user's steps, with the columns `beside` theirs: their place in time.

    Versions that the steps leave out are deletes of their keys.
    """
    names = edge.schema.names
    if not steps:
        return rows.select(*[f"`{name}`" for name in names], *beside)
    own = [name for name in rows.columns if name not in beside]
    wrapped = rows.select(F.struct(*[f"`{name}`" for name in own]).alias(_ROWS), *beside)
    projected = project_producers(wrapped, {_EDGE: (_ROWS, own, steps, edge.projected)})
    is_kept, old = F.col(_EDGE).isNotNull(), dict(edge.versions_by)
    columns = {name: F.col(f"{_EDGE}.`{name}`") for name in edge.projected}
    if not old:
        return projected.where(is_kept).select(*[columns[name].alias(name) for name in names], *beside)
    for name in old:
        columns[name] = F.when(is_kept, columns[name]).otherwise(F.col(f"{_ROWS}.`{old[name]}`"))
    columns[DELETED] = ~is_kept
    return projected.select(*[columns[name].alias(name) for name in names], *beside)


def read_topic(
    spark: SparkSession, source: TopicSource, connection: Connection, end: Mapping[int, int]
) -> DataFrame:
    """The records of a topic before `end`, as the feed makes rows of them."""
    name = f"headrace-replay-{uuid.uuid4().hex}"
    schema = pa.schema([*source.schema, *_STAMPS])

    class Replay(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return from_arrow_schema(schema)

        def reader(self, schema: StructType) -> "_TopicReader":  # noqa: ARG002
            return _TopicReader(source.spec, FeedOptions(connection=connection), end, wanted)

    wanted = schema
    spark.dataSource.register(Replay)
    known = F.when(F.col("_watermark") > F.lit(NO_WATERMARK), F.col("_watermark"))
    return spark.read.format(name).load().withColumn("_watermark", known)


class _TopicReader(DataSourceReader):
    """One task per partition; each reads its partition from where the query began."""

    def __init__(
        self, spec: StreamSpec, options: FeedOptions, end: Mapping[int, int], schema: pa.Schema
    ) -> None:
        self._spec = spec
        self._options = options
        self._end = dict(end)
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(partition) for partition in sorted(self._end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return
        end = {partition.value: self._end[partition.value]}
        for stamped in read_stamped(self._spec, self._options, start=dict(self._spec.begins), end=end):
            columns = [stamped.rows[each.name].cast(each.type) for each in self._schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
