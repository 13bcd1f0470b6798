"""The Spark of a run: opened, warmed up, and its messages kept out of the terminal."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.app.options import RunOptions
from headrace.app.run.preflight import check_executors, master_of
from headrace.app.status import ClusterStatus
from headrace.client import Connection
from headrace.streams import local_spark
from headrace.streams.spark import executor_count, guest_session, is_local, running_spark, warm_up

__all__ = ["cluster_status", "messages_to", "open_spark", "start_spark"]


def start_spark(
    name: str,
    options: RunOptions,
    connection: Connection,
    cleanup: contextlib.ExitStack,
    spark: SparkSession | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> SparkSession:
    """A Spark to run queries on, warmed up; raises ConfigError if its executors cannot do their part."""
    is_new = spark is None and running_spark() is None
    own = open_spark(name, options, cleanup, spark)
    if not is_local(own.sparkContext.master):
        check_executors(own, options.data, connection, url=options.url, say=say)
    elif is_new:
        warm_up(own)
    return own


def open_spark(
    name: str, options: RunOptions, cleanup: contextlib.ExitStack, spark: SparkSession | None = None
) -> SparkSession:
    """A session for this run.

    Where this process has one already, or `spark` is given, it is a new one on the same context, and
    both the context and that session stay as they are: they are their owner's to change and to stop.
    """
    master = master_of(options)
    theirs = spark or running_spark()
    if theirs is not None:
        return guest_session(theirs, options.conf)
    with messages_to(options.data / "spark.messages"):
        own = local_spark(name, cores=options.cores, master=master, settings=options.conf)
    cleanup.callback(own.stop)
    return own


@contextlib.contextmanager
def messages_to(path: Path) -> Iterator[None]:
    """What is started within writes its messages to the file: Spark and its workers are chatty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def cluster_status(spark: SparkSession) -> ClusterStatus | None:
    """The cluster that queries run on now; None on a local Spark."""
    master = spark.sparkContext.master
    if is_local(master):
        return None
    cores = int(spark.sparkContext.defaultParallelism)
    return ClusterStatus(master=str(master), executors=executor_count(spark), cores=cores)
