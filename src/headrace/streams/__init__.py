"""Streams: events in, results by event time out; on Spark where it needs a scheduler.

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

What is computed lives in `operators` and knows nothing of Spark. The names of this
package are therefore loaded when they are first used, and importing
`headrace.streams.operators` imports no pyspark.
"""

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.streams.event_time import NO_WATERMARK as NO_WATERMARK
    from headrace.streams.event_time import Mark as Mark
    from headrace.streams.event_time import PartitionTime as PartitionTime
    from headrace.streams.offsets import TopicPosition as TopicPosition
    from headrace.streams.source.source import LogSource as LogSource
    from headrace.streams.source.source import is_log_source as is_log_source
    from headrace.streams.source.source import register as register
    from headrace.streams.source.source import register_own as register_own
    from headrace.streams.spark.session import local_spark as local_spark
    from headrace.streams.spec import DELETED as DELETED
    from headrace.streams.spec import PROCESSING_TIME as PROCESSING_TIME
    from headrace.streams.spec import CapturedColumns as CapturedColumns
    from headrace.streams.spec import StreamSpec as StreamSpec
    from headrace.streams.spec import counted_time as counted_time
    from headrace.streams.spec import field_path as field_path
    from headrace.streams.spec import field_type as field_type
    from headrace.streams.spec import rows_schema as rows_schema
    from headrace.streams.start import Start as Start
    from headrace.streams.start import parse_start as parse_start

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "event_time": "Mark NO_WATERMARK PartitionTime",
        "offsets": "TopicPosition",
        "source.source": "LogSource is_log_source register register_own",
        "spark.session": "local_spark",
        "spec": "CapturedColumns DELETED PROCESSING_TIME StreamSpec counted_time field_path field_type "
        "rows_schema",
        "start": "Start parse_start",
    },
)
