"""A Spark on this machine."""

import os
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.java import find_java, spark_environment
from headrace.streams.class_archive import archive_options
from headrace.streams.worker_python import worker_python

__all__ = ["java_options", "local_spark"]

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Workers are forked with everything imported.
    "spark.python.daemon.module": "headrace.streams.worker_daemon",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

_LOCAL_SETTINGS = {
    # Loopback only, and whatever the machine's host name resolves to.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # On a local disk the default manager starts a process (readlink) for each file it renames.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

_JAVA_OPTIONS = (
    # Spark searches the message of a failed query with a regular expression that needs stack
    # in proportion to it; at the default size a long traceback ends the query without a word.
    "-Xss16m",
    # Rows are few and fat here, so Java has little to do that is worth a second compilation:
    # it took half of the processor time of a start, and a third of a warm query's.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
)


def local_spark(
    name: str, *, cores: int = 2, settings: Mapping[str, str] | None = None, master: str | None = None
) -> SparkSession:
    """A session on `cores` local cores, or on `master`, started on the Java that `find_java` chooses.

    A task that fails, for example because its worker was killed, is tried again, as on a
    cluster. Quiet (errors only), in UTC, with state in RocksDB; on loopback unless on a
    cluster. A session that already runs in this process is returned as it is. Raises
    ConfigError without Java.
    """
    java = find_java()
    os.environ.update(spark_environment(java))
    builder = SparkSession.builder.appName(name).master(master or f"local[{cores},4]")
    chosen = {"spark.driver.extraJavaOptions": java_options(*archive_options(java)), **_SETTINGS}
    if master is None or master.startswith("local"):
        chosen |= _LOCAL_SETTINGS
        os.environ.update(worker_python())
    for key, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def java_options(*further: str) -> str:
    """How the driver's Java is started."""
    log = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    return " ".join((*_JAVA_OPTIONS, log, *further))
