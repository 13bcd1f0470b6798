"""What the peers of `windows.py` and `joins.py` have in common: Spark, Flink, and answering requests.

Runs in the environments of the peers, so it needs nothing but what is there.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Answer", "Request", "flink_tables", "micro_batch_seconds", "serve", "spark_session", "streamed"]

Request = dict[str, Any]
Answer = Callable[[Request], float]

SPARK_STATE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def serve(peers: dict[str, Callable[[], Answer]]) -> None:
    """Answers requests, lines of JSON on the standard input, as the peer that the command line names."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints is no answer
    answer = peers[sys.argv[1]]()
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps({"seconds": answer(json.loads(line))}), file=replies, flush=True)


def micro_batch_seconds(progress: list[Any]) -> float:
    """From the start of a query's first micro-batch to the end of its last, as Spark reports them."""
    begun, ended = (
        datetime.fromisoformat(each["timestamp"].replace("Z", "+00:00"))
        for each in (progress[0], progress[-1])
    )
    return (ended - begun).total_seconds() + progress[-1]["durationMs"]["triggerExecution"] / 1000


def spark_session() -> "SparkSession":
    """Spark on two cores, with the state store that its users choose for large state."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": SPARK_STATE,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.jars": os.environ.get("PEER_JARS", ""),
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def streamed(frame: "DataFrame", out: str | None) -> float:
    """The seconds in which Spark reads all there is, once; to Parquet files, or nowhere."""
    checkpoint = tempfile.mkdtemp(prefix="headrace-peer-")
    try:
        writer = frame.writeStream.outputMode("append")
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writer = writer.format("parquet" if out else "noop")
        if out:
            writer = writer.option("path", out)
        query = writer.start()
        query.awaitTermination()
        return micro_batch_seconds(query.recentProgress)
    finally:
        shutil.rmtree(checkpoint)


def flink_tables() -> Any:
    """Flink's table environment on two cores, streaming."""
    from pyflink.table import EnvironmentSettings, TableEnvironment

    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {
        "pipeline.jars": ";".join(f"file://{jar}" for jar in os.environ["PEER_JARS"].split(",")),
        "parallelism.default": "2",
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "taskmanager.memory.managed.size": "1gb",
    }.items():
        env.get_config().set(name, value)
    return env
