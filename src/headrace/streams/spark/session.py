"""A Spark on this machine, on the master that is named, or the one that this process has already."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headrace.errors import ConfigError
from headrace.java import find_java, spark_environment
from headrace.stopping import held_back
from headrace.streams.spark.class_archive import archive_options
from headrace.streams.spark.planners import planners
from headrace.streams.spark.settings import (
    read_defaults,
    refuse_connect,
    refuse_connect_session,
    session_settings,
)
from headrace.streams.spark.worker_python import given_python, worker_python

__all__ = [
    "executor_count",
    "guest_session",
    "java_options",
    "local_spark",
    "running_spark",
    "shuffle_partitions",
    "spark_home_defaults",
    "spark_master",
]

_MASTER = "spark.master"
_JAVA_OPTIONS_KEY = "spark.driver.extraJavaOptions"

# PySpark writes every refused expression to these, whole and in JSON, besides raising it.
_TWICE_SAID = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

_JAVA_OPTIONS = (
    # Spark searches the message of a failed query with a regular expression that needs stack
    # in proportion to it; at the default size a long traceback ends the query without a word.
    "-Xss16m",
    # Rows are few and fat here, so Java has little to do that is worth a second compilation:
    # it took half of the processor time of a start, and a third of a warm query's.
    "-XX:TieredStopAtLevel=1",
)
_COLLECTOR = ("-XX:+UseSerialGC",)


def local_spark(
    name: str,
    *,
    cores: int = 2,
    settings: Mapping[str, str] | None = None,
    master: str | None = None,
) -> SparkSession:
    """A session on `cores` local cores, or on `master`, started on the Java that `find_java` chooses.

    A task that fails, for example because its worker was killed, is tried again, as on a
    cluster. Quiet (errors only), in UTC, with state in RocksDB; on loopback unless on a
    cluster. What `settings` or `spark-defaults.conf` say comes before that, and a given
    PYSPARK_PYTHON is kept. A session that already runs in this process is returned as it is,
    and one that `spark-submit` prepares is started with what that was told. Raises ConfigError
    without Java, or if `master` is another than theirs.
    """
    master = spark_master(master, settings)
    running = running_spark()
    if running is not None:
        return running
    for logger in _TWICE_SAID:
        PySparkLogger.getLogger(logger).setLevel(logging.CRITICAL + 1)
    builder = SparkSession.builder.appName(name)
    for key, value in _settings(cores, master, settings or {}).items():
        builder = builder.config(key, value)
    # A start that is cut off leaves a Java that nobody ends, and a new session takes Ctrl-C for itself.
    with held_back():
        return builder.getOrCreate()


def guest_session(spark: SparkSession, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session of our own on the context of another, which stays exactly as it is.

    Ours has what was set in the other one, and `settings`; it counts in UTC. It is never stopped:
    that would stop the context. Raises ConfigError for a session of Spark Connect, and for settings
    that only a new context could have.
    """
    refuse_connect_session(spark)
    wanted = dict(settings or {})
    theirs = dict(spark.conf.getAll)
    for key, value in wanted.items():
        if not spark.conf.isModifiable(key) and theirs.get(key, _of_context(spark, key)) != value:
            raise ConfigError(
                f"{key} cannot be set in a Spark that runs already; give it to what starts that Spark "
                f"(spark-submit --conf {key}=…, or the session's builder)"
            )
    chosen = {**theirs, **wanted}
    own = spark.newSession()
    for key, value in {**chosen, **session_settings(spark.sparkContext.master, chosen)}.items():
        if spark.conf.isModifiable(key) and own.conf.get(key, None) != value:
            own.conf.set(key, value)
    return own


def running_spark() -> SparkSession | None:
    """The session of this process, if there is one."""
    if SparkContext._active_spark_context is None:
        return None
    return SparkSession.builder.getOrCreate()


def spark_master(
    asked: str | None,
    settings: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
) -> str | None:
    """Where Spark runs or will run; None: on this machine, as nobody said anything else.

    That of the session that this process has, or that spark-submit was told, comes before
    what is asked for, by `asked` or in `settings`: raises ConfigError where the two differ.
    `defaults` are those of `spark-defaults.conf`, for a Spark that is not there yet.
    """
    chosen = settings or {}
    asked = asked or chosen.get(_MASTER)
    context, submitted = SparkContext._active_spark_context, None
    if context is None:
        refuse_connect(chosen)
        submitted = _submitted()
    if context is not None:
        given, whose = context.master, "the Spark session of this process runs on"
    elif submitted is not None:
        given, whose = submitted.get(_MASTER, "local[*]"), "spark-submit was told the master"
    else:
        return asked or (defaults or {}).get(_MASTER)
    if asked is not None and asked != given:
        raise ConfigError(f"{whose} {given}, and --master says {asked}; leave --master out, or name the same")
    return given


def spark_home_defaults() -> dict[str, str]:
    """The settings of the `spark-defaults.conf` that a Spark started by this process reads."""
    return read_defaults(Path(pyspark.__file__).parent)


def _settings(cores: int, master: str | None, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a new session."""
    submitted = _submitted()
    if submitted is not None:  # its Java runs already, and what it was told stands
        chosen = {**dict(submitted.getAll()), **settings}
        return {**settings, **session_settings(submitted.get(_MASTER, "local[*]"), chosen)}
    chosen = {**spark_home_defaults(), **settings}
    java = find_java()
    given = dict(os.environ)
    os.environ.update(spark_environment(java))
    if master is None or master.startswith("local"):
        ours = worker_python()
        os.environ.update(ours and {**ours, **planners()})
    os.environ.update(given_python(given, chosen))
    return {
        **settings,
        **session_settings(master, chosen),
        _MASTER: master or f"local[{cores},4]",
        _JAVA_OPTIONS_KEY: java_options(*(_given_options(chosen) or archive_options(java))),
    }


def _of_context(spark: SparkSession, key: str) -> str | None:
    found: str | None = spark.sparkContext.getConf().get(key)
    return found


def _submitted() -> SparkConf | None:
    """What spark-submit was told, if it started this process."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    SparkContext._ensure_initialized()  # connects to its Java
    return SparkConf()


def _given_options(chosen: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(chosen.get(_JAVA_OPTIONS_KEY, "").split())


def java_options(*further: str) -> str:
    """How the driver's Java is started; `further` may name another collector of garbage than ours."""
    log = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    collects = any(each.startswith("-XX:+Use") and each.endswith("GC") for each in further)
    return " ".join((*_JAVA_OPTIONS, *(() if collects else _COLLECTOR), log, *further))


def executor_count(spark: SparkSession) -> int:
    """The executors that are registered now; none where tasks run in the driver's own process."""
    context: Any = spark.sparkContext
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # less the driver


def shuffle_partitions(spark: SparkSession) -> int:
    """Into how many partitions this session's shuffles go."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
