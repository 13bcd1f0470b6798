"""Streams on Spark: everything that imports pyspark.

`local_spark` starts a Spark on this machine with the Java that was found;
`register` makes the log known to a session, as the format "headrace":

    spark = local_spark("orders")
    register(spark)
    orders = (spark.readStream.format("headrace")
              .schema("order_id string, amount double, _offset long")
              .option("topic", "orders").load())

The source reads whole record batches and yields Arrow columns; it never handles a
record by itself. It reaches the log over Kafka's protocol only, so that Kafka can
stand in its place. May import `client` and below.
"""

from headrace.streams.session import local_spark
from headrace.streams.source import LogSource, register

__all__ = ["LogSource", "local_spark", "register"]
