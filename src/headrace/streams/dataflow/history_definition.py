"""The batch definition of a table's history: its versions with their spans, and which of them are kept.

What is kept depends on how far the table's watermark has come, with two exceptions, which the records
alone do not decide: a key that was forgotten as a whole, and came again. Its last delete may be there
or not; and if what came again was older than the whole history, so may be what it meets. Nobody can ask
for either.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know

from headrace.streams.event_time import NO_WATERMARK
from headrace.streams.operators import TableHistory
from headrace.streams.spec import DELETED

__all__ = ["comparable_versions", "history_rows"]

_EARLIEST_US = -62_135_596_800_000_000  # the year 1
_FOREVER_US = 253_402_300_799_999_999  # the end of the year 9999
_LAST_OFFSET = (1 << 63) - 1
_ORDER = ("_event_time", "_partition", "_offset")


def history_rows(
    operator: TableHistory, versions: DataFrame, reached: int, names: Sequence[str]
) -> DataFrame:
    """The versions that are kept when the watermark has come so far, each with its spans."""
    rows = _with_spans(operator, versions)
    horizon = operator.horizon(reached)
    if horizon > NO_WATERMARK:
        is_over = (F.col("_until") < horizon) & (F.col("_superseded") < horizon)
        is_old = F.col(DELETED) & (F.col("_superseded") == _FOREVER_US) & _is_before(horizon)
        of_key = Window.partitionBy(*_named(operator.key))
        rows = rows.withColumn("_over", is_over).withColumn("_whole", F.min(is_over | is_old).over(of_key))
        rows = _with_spans(operator, rows.where(~F.col("_over") & ~F.col("_whole")))
    at = F.greatest(F.col("_known"), F.col("_event_time") - operator.lateness_us)
    spans = {
        "_valid_from": F.timestamp_micros("_event_time"),
        "_valid_to": F.timestamp_micros("_until"),
        "_in_partition": F.col("_partition"),
        "_from_offset": F.col("_offset"),
        "_to_offset": F.col("_following"),
        "_known_at": F.timestamp_micros(F.greatest(at, F.lit(_EARLIEST_US))),
    }
    return rows.withColumns(spans).select(
        *_named(names), *[name for name in rows.columns if name not in names]
    )


def comparable_versions(
    operator: TableHistory, rows: DataFrame, others: DataFrame, reached: int
) -> tuple[DataFrame, DataFrame]:
    """Two histories without what the records alone do not decide."""
    horizon = operator.horizon(reached)
    if horizon == NO_WATERMARK:
        return rows, others
    late = _late_keys(operator, rows).union(_late_keys(operator, others)).distinct()
    return tuple(_decided(operator, each, late, horizon) for each in (rows, others))  # type: ignore[return-value]


def _decided(operator: TableHistory, rows: DataFrame, late: DataFrame, horizon: int) -> DataFrame:
    """Versions but for those of some keys, and for old deletes with nothing before them."""
    is_old = F.col(DELETED) & (_micros("_valid_from") < horizon) & (_micros("_known_at") < horizon)
    so_far = (
        Window.partitionBy(*_named(operator.key))
        .orderBy("_valid_from", "_in_partition", "_from_offset")
        .rowsBetween(Window.unboundedPreceding, 0)
    )
    rows = rows.withColumn("_decided", F.max(~is_old).over(so_far)).where("_decided").drop("_decided")
    return rows.join(late, list(operator.key), "left_anti").select(*rows.columns)


def _late_keys(operator: TableHistory, rows: DataFrame) -> DataFrame:
    """The keys of which a version came later than the whole history."""
    step = operator.step_us
    horizon = F.floor((_micros("_known_at") - operator.keep_us) / step) * step
    return rows.where(_micros("_valid_from") < horizon).select(*_named(operator.key))


def _with_spans(operator: TableHistory, rows: DataFrame) -> DataFrame:
    """By time until the next version; by offset until the next of the partition, and when that was known."""
    known = F.greatest(F.coalesce(F.col("_watermark"), F.lit(_EARLIEST_US)), F.lit(_EARLIEST_US))
    by_time = Window.partitionBy(*_named(operator.key)).orderBy(*_ORDER)
    by_offset = Window.partitionBy(*_named(operator.key), "_partition").orderBy("_offset")
    rows = rows.withColumn("_known", known)
    return rows.withColumns(
        {
            "_until": F.coalesce(F.lead("_event_time").over(by_time), F.lit(_FOREVER_US)),
            "_following": F.coalesce(F.lead("_offset").over(by_offset), F.lit(_LAST_OFFSET)),
            "_superseded": F.coalesce(F.lead("_known").over(by_offset), F.lit(_FOREVER_US)),
        }
    )


def _is_before(horizon: int) -> Column:
    return (F.col("_event_time") < horizon) & (F.col("_known") < horizon)


def _micros(name: str) -> Column:
    return F.unix_micros(name)


def _named(names: Sequence[str]) -> list[str]:
    return [f"`{name}`" for name in names]
