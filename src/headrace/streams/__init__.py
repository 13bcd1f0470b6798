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

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.streams.session import local_spark
    from headrace.streams.source import LogSource, register

__all__ = ["LogSource", "local_spark", "register"]

_HOMES = {
    "LogSource": "headrace.streams.source",
    "local_spark": "headrace.streams.session",
    "register": "headrace.streams.source",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
