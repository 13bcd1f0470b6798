"""What a stream's plain DataFrame needs to know while an application is planned: which Spark, which log."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.client import EARLIEST, LATEST, RawFetcher
from headrace.client.connect import Connection
from headrace.errors import ConfigError
from headrace.views import AsOf, parse_as_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.streams import StreamSpec
    from headrace.streams.engine import Step

__all__ = ["plain_frame", "planning_context", "reading_from", "table_frame"]

_Context = tuple["SparkSession", Connection, Mapping[str, int]]
_current: ContextVar[_Context | None] = ContextVar("planning", default=None)


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


def planning_context() -> _Context:
    """The Spark, the log and the limits of the application being planned; raises ConfigError outside."""
    found = _current.get()
    if found is None:
        raise ConfigError(
            "a stream's .df exists while its application runs: use it inside a view function, "
            "and start the file with `headrace run`"
        )
    return found


def table_frame(
    spec: "StreamSpec",
    steps: "Sequence[Step]",
    spark: "SparkSession | None",
    bootstrap: str | None,
    as_of: str | datetime | None,
) -> "DataFrame":
    """The rows of a table, with its steps, read from its topic."""
    from headrace.streams.dataflow import table_rows
    from headrace.streams.engine import columns_after

    if spark is None:
        spark, connection, _ = planning_context()
    else:
        connection = Connection() if bootstrap is None else Connection(bootstrap_servers=bootstrap)
    moment = AsOf(time=as_of) if isinstance(as_of, datetime) else parse_as_of(as_of) if as_of else AsOf()
    with RawFetcher(connection) as fetcher:
        begins, ends = (fetcher.offsets(spec.topic, when) for when in (EARLIEST, LATEST))
    spec = replace(spec, begins=tuple(sorted(begins.items())))
    time_us = None if moment.time is None else round(moment.time.timestamp() * 1_000_000)
    ends |= {partition: min(end, ends.get(partition, 0)) for partition, end in moment.offsets.items()}
    rows = table_rows(spark, spec, connection=connection, ends=ends, as_of_us=time_us)
    return columns_after(rows, rows.columns, steps)


def plain_frame(spec: "StreamSpec", steps: "Sequence[Step]") -> "DataFrame":
    """A stream with its steps as PySpark would have it, without event time or late data."""
    from headrace.streams import register_own
    from headrace.streams.engine import columns_after

    spark, connection, limits = planning_context()
    reader = spark.readStream.format(register_own(spark)).schema(f"{spec.schema}, _corrupt string")
    log = {"bootstrap_servers": connection.bootstrap_servers, **connection.identity_fields()}
    frame = reader.options(topic=spec.topic, **log, **limits).load()
    return columns_after(frame, frame.columns, steps)
