"""The batch definitions of operators on rows and of sets of rows, in Spark's own SQL.

They are what the documentation says of each; rows carry their place in time next to their columns.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know
from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StructType

from headrace.streams.event_time import NO_WATERMARK
from headrace.streams.operators import Dedup, Distinct, Explode, FirstRow, LastRow, Settled, Top, Union

__all__ = [
    "deduplicated_rows",
    "distinct_rows",
    "exploded_rows",
    "first_rows",
    "last_rows",
    "settled_rows",
    "top_rows",
    "united_rows",
]

_STAMPS = ("_event_time", "_partition", "_offset", "_watermark")


def distinct_rows(operator: Distinct, rows: DataFrame) -> DataFrame:
    """SELECT DISTINCT; of numbers, both zeros are one."""
    return rows.select(*[_one_zero(rows, name).alias(name) for name in operator.columns]).distinct()


def top_rows(operator: Top, rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """The first n by ROW_NUMBER, ties broken by the key and then by all columns, ascending, nulls first."""
    by = [_ordered(name, descending=descending) for name, descending in operator.by]
    ties = _ascending(rows, [*operator.ties, *names])
    window = Window.partitionBy(*[f"`{name}`" for name in operator.keys]).orderBy(*by, *ties)
    numbered = rows.withColumn("_n", F.row_number().over(window))
    return numbered.where(F.col("_n") <= operator.n).drop("_n")


def first_rows(operator: FirstRow, rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """The first by RANK of each key, by the columns that tell rows apart and then by all, nulls first.

    Of several that differ only in arrays, structs and maps all, as any of them may be shown.
    """
    order = _ascending(rows, [*operator.ties, *names])
    window = Window.partitionBy(*[f"`{name}`" for name in operator.keys]).orderBy(*order)
    first = rows.withColumn("_n", F.rank().over(window)).where("_n = 1").drop("_n")
    return first.withColumns({name: _one_zero(rows, name) for name in operator.keys})


def last_rows(operator: LastRow, rows: DataFrame) -> DataFrame:
    """The first by RANK of each key; of several rows of that record all, as any of them may be shown."""
    window = Window.partitionBy(*[f"`{name}`" for name in operator.keys]).orderBy(
        *[F.desc(name) for name in _STAMPS[:3]]
    )
    return rows.withColumn("_n", F.rank().over(window)).where("_n = 1").drop("_n")


def deduplicated_rows(operator: Dedup, rows: DataFrame, reached: int) -> DataFrame:
    """Rows whose LAG is null or long enough before, of those in time; as far as the watermark has come."""
    watermark, at = F.col("_watermark"), F.col("_event_time")
    in_time = rows.where(watermark.isNull() | (watermark - F.lit(operator.wait_us) <= at))
    ties = [
        F.asc_nulls_first(f"`{name}`")
        for name in rows.columns
        if name not in _STAMPS and not _is_nested(rows, name)
    ]
    window = Window.partitionBy(*[f"`{name}`" for name in operator.keys]).orderBy(*_STAMPS[:3], *ties)
    before = in_time.withColumn("_before", F.lag("_event_time").over(window))
    out = F.col("_before").isNull() | (at - F.col("_before") > operator.within_us)
    settled = F.lit(max(reached - operator.wait_us, NO_WATERMARK))
    kept = before.where(out & (at < settled)).drop("_before")
    return kept.withColumns({name: _one_zero(rows, name) for name in operator.keys})


def settled_rows(operator: Settled, rows: DataFrame, reached: int) -> DataFrame:
    """The rows that the watermark has passed; theirs are as far behind as it is."""
    final = rows.where(F.col("_event_time") < F.lit(reached))
    return final.withColumn("_watermark", F.col("_watermark") - F.lit(operator.wait_us))


def united_rows(operator: Union, inputs: Sequence[DataFrame]) -> DataFrame:
    """UNION ALL by name; partitions have numbers of their own for each input."""
    parts = [
        rows.withColumn("_partition", (F.col("_partition") * operator.count + number).cast("int"))
        for number, rows in enumerate(inputs)
    ]
    together = parts[0]
    for each in parts[1:]:
        together = together.unionByName(each)
    return together


def exploded_rows(operator: Explode, rows: DataFrame) -> DataFrame:
    """POSEXPLODE, or POSEXPLODE_OUTER."""
    explode = F.posexplode_outer if operator.outer else F.posexplode
    exploded = rows.select("*", explode(f"`{operator.column}`").alias("_place", "_element"))
    columns: list[Column] = []
    for name in rows.columns:
        if name != operator.column:
            columns.append(F.col(f"`{name}`"))
            continue
        columns.append(F.col("_element").alias(operator.name))
        if operator.position is not None:
            columns.append(F.col("_place").alias(operator.position))
    return exploded.select(*columns)


def _ascending(rows: DataFrame, names: Sequence[str]) -> list[Column]:
    """An order by the columns that have one, nulls first."""
    ordered = [name for name in dict.fromkeys(names) if not _is_nested(rows, name)]
    return [F.asc_nulls_first(f"`{name}`") for name in ordered]


def _is_nested(rows: DataFrame, name: str) -> bool:
    return isinstance(rows.schema[name].dataType, ArrayType | MapType | StructType)


def _one_zero(rows: DataFrame, name: str) -> Column:
    """A column in which -0.0 is 0.0."""
    kind = rows.schema[name].dataType
    column = F.col(f"`{name}`")
    return column + F.lit(0.0).cast(kind) if isinstance(kind, DoubleType | FloatType) else column


def _ordered(name: str, *, descending: bool) -> Column:
    return F.desc_nulls_last(f"`{name}`") if descending else F.asc_nulls_last(f"`{name}`")
