"""The peers of `joins.py`, each run by the interpreter of its own environment.

    python joins_peers.py flink|spark

Reads requests as JSON lines (kind, bootstrap, out) and answers each with the seconds it took.
With `out` the results are written there, or to a topic of that name where rows are taken back;
without, they go nowhere, which is in the peer's favour, since ours are always kept.
"""

import time

from peers import Answer, Request, flink_tables, serve, spark_session, streamed

# --- Flink SQL ----------------------------------------------------------------------------------

APPEND_ONLY = "'connector'='kafka', 'format'='json', 'scan.startup.mode'='earliest-offset'"
UPSERTS = "'connector'='upsert-kafka', 'key.format'='json', 'value.format'='json'"
TABLES = {
    "searches": (
        """`search` bigint, `at` bigint, words string,
        ts as to_timestamp_ltz(`at`, 3), watermark for ts as ts - interval '10' second""",
        APPEND_ONLY,
    ),
    "clicks": (
        """click bigint, search_id bigint, clicked_at bigint,
        ts as to_timestamp_ltz(clicked_at, 3), watermark for ts as ts - interval '10' second""",
        APPEND_ONLY,
    ),
    "order_events": (
        """order_id bigint, customer_id bigint, amount bigint, placed_at bigint, line bigint,
        ts as to_timestamp_ltz(placed_at, 3), watermark for ts as ts - interval '10' second""",
        APPEND_ONLY,
    ),
    "orders": (
        """order_id bigint, customer_id bigint, amount bigint, placed_at bigint, line bigint,
        primary key (order_id) not enforced""",
        UPSERTS,
    ),
    "customers": (
        """customer bigint, region string, changed_at bigint, version bigint,
        primary key (customer) not enforced""",
        UPSERTS,
    ),
    "customer_versions": (
        """customer bigint, region string, changed_at bigint, version bigint,
        ts as to_timestamp_ltz(changed_at, 3), watermark for ts as ts, primary key (customer) not enforced""",
        UPSERTS,
    ),
}
TOPIC_OF = {"order_events": "orders", "customer_versions": "customers"}
QUERIES = {
    "stream-stream": """select c.click, s.`search`, s.words, c.clicked_at - s.`at` from searches s
        join clicks c on s.`search` = c.search_id and c.ts between s.ts and s.ts + interval '5' second""",
    "as of": """select o.line, o.order_id, o.amount, c.region from order_events o
        left join customer_versions for system_time as of o.ts as c on o.customer_id = c.customer""",
    "table-table": """select o.order_id, o.amount, c.region from orders o
        left join customers c on o.customer_id = c.customer""",
    "group": "select region, count(*), sum(version) from customers group by region",
}
RESULTS = {  # columns, and the key where rows are taken back
    "stream-stream": ("click bigint, `search` bigint, words string, waited bigint", ""),
    "as of": ("line bigint, order_id bigint, amount bigint, region string", ""),
    "table-table": ("order_id bigint, amount bigint, region string", "order_id"),
    "group": ("region string, customers bigint, newest bigint", "region"),
}


def flink() -> Answer:
    def sink(request: Request, key: str) -> str:
        if not request["out"]:
            return "'connector'='blackhole'"
        if not key:
            return f"'connector'='filesystem', 'path'='file://{request['out']}', 'format'='csv'"
        servers = f"'properties.bootstrap.servers'='{request['bootstrap']}'"
        return f"{UPSERTS}, 'topic'='{request['out'].rpartition('/')[2]}', {servers}"

    def answer(request: Request) -> float:
        env = flink_tables()
        for name, (columns, connector) in TABLES.items():
            env.execute_sql(f"""create table {name}({columns}) with ({connector},
                'topic'='{TOPIC_OF.get(name, name)}', 'scan.bounded.mode'='latest-offset',
                'properties.bootstrap.servers'='{request["bootstrap"]}')""")
        columns, key = RESULTS[request["kind"]]
        primary = f", primary key ({key}) not enforced" if key and request["out"] else ""
        env.execute_sql(f"create table sink({columns}{primary}) with ({sink(request, key)})")
        conflict = "on conflict do deduplicate" if primary else ""
        began = time.perf_counter()
        env.execute_sql(f"insert into sink {QUERIES[request['kind']]} {conflict}").wait()
        return time.perf_counter() - began

    return answer


# --- Spark's own stream-stream join -------------------------------------------------------------


def spark() -> Answer:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know

    session = spark_session()

    def rows(request: Request, topic: str, schema: str, time_column: str) -> DataFrame:
        reader = session.readStream.format("kafka").option("subscribe", topic)
        reader = reader.option("kafka.bootstrap.servers", request["bootstrap"])
        values = reader.option("startingOffsets", "earliest").load()
        parsed = values.select(F.from_json(F.col("value").cast("string"), schema).alias("e")).select("e.*")
        return parsed.withColumn(f"{topic}_ts", F.timestamp_millis(time_column)).withWatermark(
            f"{topic}_ts", "10 seconds"
        )

    def results(request: Request) -> DataFrame:
        searches = rows(request, "searches", "search long, at long, words string", "at")
        clicks = rows(request, "clicks", "click long, search_id long, clicked_at long", "clicked_at")
        near = "clicks_ts between searches_ts and searches_ts + interval 5 seconds"
        joined = searches.join(clicks, F.expr(f"search = search_id and {near}"))
        return joined.selectExpr("click", "search", "words", "clicked_at - at as waited")

    return lambda request: streamed(results(request), request["out"])


if __name__ == "__main__":
    serve({"flink": flink, "spark": spark})
