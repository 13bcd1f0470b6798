"""Spark's side of `freshness.py`: the same three views as three queries of its own operators.

On a real Kafka with Spark's connector, each view upserted into SQLite as ours is; prints
what `freshness_ours.py` prints, per view.
"""

import json
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know

VIEWS = {
    "by_user": ("user", "1 minute", "1 minute"),
    "by_page": ("page", "10 seconds", "10 seconds"),
    "lately": ("page", "1 minute", "10 seconds"),
}


def session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.jars": os.environ["PEER_JARS"],
    }.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def results(spark: SparkSession, bootstrap: str, topic: str, view: str) -> DataFrame:
    key, size, step = VIEWS[view]
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    values = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
    schema = "user string, amount long, at long, page string"
    rows = values.select(F.from_json(F.col("value").cast("string"), schema).alias("e")).select("e.*")
    rows = rows.withColumn("at", F.timestamp_millis("at")).withWatermark("at", "10 seconds")
    grouped = rows.groupBy(key, F.window("at", size, step).alias("w"))
    done = grouped.agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
    return done.select(key, F.unix_micros("w.start"), F.unix_micros("w.end"), "n", "total")


def main() -> None:
    bootstrap, topic = sys.argv[1:]
    spark = session()
    folder = Path(tempfile.mkdtemp(prefix="headrace-freshness-"))
    visible: dict[str, dict[int, float]] = {name: {} for name in VIEWS}
    queries = {}
    for view in VIEWS:
        base = sqlite3.connect(folder / f"{view}.db", check_same_thread=False)
        base.execute("pragma journal_mode=wal")
        base.execute("create table view(k, start, finish, n, total, primary key (k, start, finish))")

        def write(frame: DataFrame, batch: int, view: str = view, base: Any = base) -> None:
            columns = [column.to_pylist() for column in frame.toArrow().columns]
            with base:
                base.executemany(
                    "insert or replace into view values (?, ?, ?, ?, ?)", zip(*columns, strict=True)
                )
            visible[view][batch] = time.time()

        writer = results(spark, bootstrap, topic, view).writeStream.outputMode("update").foreachBatch(write)
        queries[view] = writer.option("checkpointLocation", str(folder / f"{view}.checkpoint")).start()
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.read()
    seen = []
    durations = []
    for view, query in queries.items():
        for each in query.recentProgress:
            ends = each["sources"][0]["endOffset"]
            ends = json.loads(ends) if isinstance(ends, str) else ends
            if each["batchId"] in visible[view] and ends:
                seen.append((view, visible[view][each["batchId"]], ends[topic]))
                durations.append(each["durationMs"])
        query.stop()
    print(json.dumps({"seen": seen, "batches": durations}), flush=True)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
