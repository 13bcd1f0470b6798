"""The peers of `windows.py`, each run by the interpreter of its own environment.

    python windows_peers.py bare|spark-files|spark-kafka|flink|pathway

Reads requests as JSON lines (window, folder, bootstrap, topic, out) and answers each with
the seconds it took. With `out` the results are written there, to be checked; without,
they go nowhere, which is in the peer's favour, since ours are always kept.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from peers import Answer, Request, flink_tables, serve, spark_session, streamed

MINUTE_MS, HOPPING_MS, GAP_MS = 60_000, 300_000, 5_000
SPARK_SCHEMA = "user string, amount long, at long"


# --- pyarrow without anything around it ---------------------------------------------------------


def bare() -> Answer:
    import numpy as np
    import pyarrow as pa
    import pyarrow.json as pj
    import pyarrow.parquet as pq

    fields = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("at", pa.int64())])
    whole = [("n", "sum"), ("total", "sum")]

    def parse(path: Path) -> pa.Table:
        return pj.read_json(
            path,
            read_options=pj.ReadOptions(use_threads=False, block_size=8 << 20),
            parse_options=pj.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore"),
        )

    def panes(path: Path) -> pa.Table:
        table = parse(path)
        starts = pa.array(table["at"].to_numpy() // MINUTE_MS * MINUTE_MS)
        grouped = pa.table({"user": table["user"], "start": starts, "amount": table["amount"]})
        found = grouped.group_by(["user", "start"], use_threads=False)
        done = found.aggregate([("amount", "count"), ("amount", "sum")])
        return done.rename_columns(["user", "start", "n", "total"])

    def merged(tables: list[pa.Table]) -> pa.Table:
        done = pa.concat_tables(tables).group_by(["user", "start"]).aggregate(whole)
        return done.rename_columns(["user", "start", "n", "total"])

    def hopping(table: pa.Table) -> pa.Table:
        back = range(0, HOPPING_MS, MINUTE_MS)
        starts = table["start"].to_numpy()
        return merged([table.set_column(1, "start", pa.array(starts - each)) for each in back])

    def sessions(tables: list[pa.Table]) -> pa.Table:
        users = pa.concat_tables([each.select(["user"]) for each in tables]).combine_chunks()
        codes = users["user"].combine_chunks().dictionary_encode()
        user = codes.indices.to_numpy()
        at = np.concatenate([each["at"].to_numpy() for each in tables])
        amount = np.concatenate([each["amount"].to_numpy() for each in tables])
        order = np.lexsort((at, user))
        user, at, amount = user[order], at[order], amount[order]
        fresh = np.flatnonzero(np.r_[True, (np.diff(user) != 0) | (np.diff(at) > GAP_MS)])
        ends = np.r_[fresh[1:], len(at)]
        return pa.table(
            {
                "user": codes.dictionary.take(pa.array(user[fresh])),
                "start": at[fresh],
                "n": ends - fresh,
                "total": np.add.reduceat(amount, fresh),
                "end": at[ends - 1] + GAP_MS,
            }
        )

    def answer(request: Request) -> float:
        files = sorted(Path(request["folder"]).glob("*.json"))
        began = time.perf_counter()
        with ThreadPoolExecutor(2) as pool:
            if request["window"] == "session":
                table = sessions(list(pool.map(parse, files)))
            else:
                table = merged(list(pool.map(panes, files)))
                if request["window"] == "hopping":
                    table = hopping(table)
        seconds = time.perf_counter() - began
        if request["out"]:
            if request["window"] != "session":
                size = HOPPING_MS if request["window"] == "hopping" else MINUTE_MS
                table = table.append_column("end", pa.array(table["start"].to_numpy() + size))
            Path(request["out"]).mkdir(parents=True)
            pq.write_table(table, Path(request["out"]) / "part.parquet")
        return seconds

    return answer


# --- Spark's own operators ----------------------------------------------------------------------


def spark(source: str) -> Answer:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know

    session = spark_session()

    def values(request: Request) -> DataFrame:
        if source == "files":
            return session.readStream.text(request["folder"])
        reader = session.readStream.format("kafka").option("subscribe", request["topic"])
        reader = reader.option("kafka.bootstrap.servers", request["bootstrap"])
        frame = reader.option("startingOffsets", "earliest").load()
        return frame.select(F.col("value").cast("string").alias("value"))

    def results(request: Request) -> DataFrame:
        rows = values(request).select(F.from_json("value", SPARK_SCHEMA).alias("e")).select("e.*")
        rows = rows.withColumn("at", F.timestamp_millis("at")).withWatermark("at", "10 seconds")
        window = {
            "tumbling": lambda: F.window("at", "1 minute"),
            "hopping": lambda: F.window("at", "5 minutes", "1 minute"),
            "session": lambda: F.session_window("at", "5 seconds"),
        }[request["window"]]()
        grouped = rows.groupBy("user", window.alias("w"))
        done = grouped.agg(F.count("*").alias("n"), F.sum("amount").alias("total"))
        bounds = [F.unix_millis(f"w.{name}").alias(name) for name in ("start", "end")]
        return done.select("user", *bounds, "n", "total")

    return lambda request: streamed(results(request), request["out"])


# --- Flink SQL ----------------------------------------------------------------------------------

FLINK_WINDOWS = {
    "tumbling": "tumble(table clicks, descriptor(ts), interval '1' minute)",
    "hopping": "hop(table clicks, descriptor(ts), interval '1' minute, interval '5' minute)",
    "session": "session(table clicks partition by `user`, descriptor(ts), interval '5' second)",
}


def flink() -> Answer:
    def answer(request: Request) -> float:
        env = flink_tables()
        env.execute_sql(f"""create table clicks(`user` string, amount bigint, `at` bigint,
            ts as to_timestamp_ltz(`at`, 3), watermark for ts as ts - interval '10' second) with (
            'connector'='kafka', 'topic'='{request["topic"]}', 'format'='json',
            'properties.bootstrap.servers'='{request["bootstrap"]}',
            'scan.startup.mode'='earliest-offset', 'scan.bounded.mode'='latest-offset')""")
        sink = "'connector'='blackhole'"
        if request["out"]:
            sink = f"'connector'='filesystem', 'path'='file://{request['out']}', 'format'='csv'"
        env.execute_sql(
            "create table sink(`user` string, `start` bigint, `end` bigint, n bigint, total bigint) "
            f"with ({sink})"
        )
        millis = "extract(epoch from {0}) * 1000 + extract(millisecond from {0})"
        start, end = (millis.format(f"cast(window_{each} as timestamp(3))") for each in ("start", "end"))
        began = time.perf_counter()
        env.execute_sql(
            f"""insert into sink select `user`, {start}, {end}, count(*), sum(amount)
            from {FLINK_WINDOWS[request["window"]]} group by `user`, window_start, window_end"""
        ).wait()
        return time.perf_counter() - began

    return answer


# --- Pathway ------------------------------------------------------------------------------------


def pathway() -> Answer:
    import pathway as pw
    from pathway.internals.parse_graph import G

    class Click(pw.Schema):
        user: str
        amount: int
        at: int

    def grouped(table: Any, window: str) -> Any:
        made = {
            "hopping": lambda: pw.temporal.sliding(hop=MINUTE_MS, duration=HOPPING_MS),
            "session": lambda: pw.temporal.session(max_gap=GAP_MS + 1),  # ours and Spark's include the gap
        }[window]()
        result = table.windowby(table.at, window=made, instance=table.user).reduce(
            user=pw.this._pw_instance,
            start=pw.this._pw_window_start,
            end=pw.this._pw_window_end,
            n=pw.reducers.count(),
            total=pw.reducers.sum(pw.this.amount),
        )
        if window == "session":
            result = result.with_columns(end=result.end + GAP_MS)
        return result

    def tumbling(table: Any) -> Any:
        table = table.with_columns(start=table.at // MINUTE_MS * MINUTE_MS)
        result = table.groupby(table.user, table.start).reduce(
            table.user, table.start, n=pw.reducers.count(), total=pw.reducers.sum(table.amount)
        )
        return result.with_columns(end=result.start + MINUTE_MS)

    def answer(request: Request) -> float:
        G.clear()
        table = pw.io.jsonlines.read(request["folder"], schema=Click, mode="static")
        window = request["window"]
        result = tumbling(table) if window == "tumbling" else grouped(table, window)
        if request["out"]:
            Path(request["out"]).mkdir(parents=True)
            columns = [result[name] for name in ("user", "start", "end", "n", "total")]
            pw.io.csv.write(result.select(*columns), f"{request['out']}/part.csv")
        else:
            pw.io.null.write(result)
        began = time.perf_counter()
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        return time.perf_counter() - began

    return answer


PEERS: dict[str, Callable[[], Answer]] = {
    "bare": bare,
    "spark-files": lambda: spark("files"),
    "spark-kafka": lambda: spark("kafka"),
    "flink": flink,
    "pathway": pathway,
}


if __name__ == "__main__":
    serve(PEERS)
