"""Warms a fresh local Spark up while the application is still being planned.

The first batch of a session pays for what later ones find ready: the processes that look for
data sources, make one and plan its partitions, the daemon of Python workers with all it
imports, and the Java classes of a scan, a shuffle and an Arrow stage. One after another they
take longer than the session itself took to start, on one core. A job of one row that takes
the same way, run beside the planning, has most of them started by then.
"""

import logging
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

__all__ = ["warm_up"]

_log = logging.getLogger(__name__)
_SCHEMA = "id int"


class _OneRow(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headrace-warm-up"

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
        return _OneRowReader()


class _OneRowReader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - Spark's signature
        yield pa.record_batch({"id": pa.array([0], pa.int32())})


def warm_up(spark: SparkSession) -> tuple[threading.Thread, ...]:
    """Runs two small jobs while the caller goes on with the session; they end by themselves.

    Two, because the workers' daemon need not wait until a data source was found, made and
    planned. Nothing depends on them: one that fails, for example because the session is
    stopped meanwhile, is noted at debug level and forgotten.
    """
    jobs = tuple(
        threading.Thread(target=_forgiving, args=(job, spark), name=f"warm-up-{job.__name__}", daemon=True)
        for job in (_workers, _source)
    )
    for job in jobs:
        job.start()
    return jobs


def _forgiving(job: Callable[[SparkSession], None], spark: SparkSession) -> None:
    try:
        job(spark)
    except Exception as error:  # the outer edge of a thread that nobody waits for
        _log.debug("Spark was not warmed up: %s", error)


def _workers(spark: SparkSession) -> None:
    """The daemon of Python workers, a shuffle and an Arrow stage."""
    _through_a_stage(spark.range(0, 2, 1, 2).select(F.col("id").cast("int")))


def _source(spark: SparkSession) -> None:
    """The processes of a data source written in Python."""
    spark.dataSource.register(_OneRow)
    _through_a_stage(spark.read.format(_OneRow.name()).load())


def _through_a_stage(rows: DataFrame) -> None:
    def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    spread = rows.repartitionById(2, F.col("id") % 2)
    spread.mapInArrow(unchanged, _SCHEMA).toArrow()
