"""What a stream's plain DataFrame needs to know while an application is planned: which Spark, which log."""

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING

from headrace.client.connection import Connection
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.app.stream import Stream

__all__ = ["plain_frame", "reading_from", "surroundings"]

_Surroundings = tuple["SparkSession", Connection, Mapping[str, int]]
_current: ContextVar[_Surroundings | None] = ContextVar("surroundings", default=None)


@contextlib.contextmanager
def reading_from(
    spark: "SparkSession", connection: Connection, limits: Mapping[str, int] | None = None
) -> Iterator[None]:
    """Within, `.df` of a stream reads from this log on this Spark.

    `limits` are options of the source that bound a micro-batch, where they are not its own.
    """
    token = _current.set((spark, connection, limits or {}))
    try:
        yield
    finally:
        _current.reset(token)


def surroundings() -> _Surroundings:
    """The Spark, the log and the limits of the application being planned; raises ConfigError outside."""
    found = _current.get()
    if found is None:
        raise ConfigError(
            "a stream's .df exists while its application runs: use it inside a view function, "
            "and start the file with `headrace run`"
        )
    return found


def plain_frame(stream: "Stream") -> "DataFrame":
    """A stream with its steps as PySpark would have it, without event time or late data."""
    from headrace.streams import register
    from headrace.streams.engine.projection import columns_after

    spark, connection, limits = surroundings()
    register(spark)
    reader = spark.readStream.format("headrace").schema(f"{stream.spec.schema}, _corrupt string")
    log = {"bootstrap_servers": connection.bootstrap_servers, **connection.identity_fields()}
    frame = reader.options(topic=stream.spec.topic, **log, **limits).load()
    return columns_after(frame, frame.columns, stream.steps)
