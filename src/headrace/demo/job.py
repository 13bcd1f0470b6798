"""The query: orders from the log, totals per minute with Spark's own operators, into SQLite."""

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every PySpark program calls it
from pyspark.sql.streaming.query import StreamingQuery

from headrace.demo.orders import SCHEMA
from headrace.demo.table import MinuteTable
from headrace.streams import register

__all__ = ["start_query"]


def start_query(
    spark: SparkSession,
    table: MinuteTable,
    *,
    bootstrap: str,
    topic: str,
    checkpoint: str,
    on_batch: Callable[[int], None],
) -> StreamingQuery:
    """Starts counting; `on_batch` is called with the batch's number after each one is in the table."""
    register(spark)
    orders = (
        spark.readStream.format("headrace")
        .schema(SCHEMA)
        .option("bootstrap_servers", bootstrap)
        .option("topic", topic)
        .load()
    )
    per_minute = (
        orders.groupBy(F.window("placed_at", "1 minute"))
        .agg(F.count("*").alias("orders"), F.sum("amount_cents").alias("cents"))
        .select(F.date_format("window.start", "yyyy-MM-dd HH:mm").alias("minute"), "orders", "cents")
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        table.apply(topic, batch_id, [tuple(row) for row in batch.collect()])
        on_batch(batch_id)

    writer = per_minute.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
    return writer.foreachBatch(write).start()
