"""Claim: joins of streams at 3 times the speed of the best of the others, tables and groups at 2 times.

    python benchmarks/joins.py [--quick] [--rows 2000000] [--rounds 3] [--only ours,flink] [--kinds …]

The same JSON for everybody (see `joins_data.py`), that many rows in each topic: an application of
ours on our log, its view kept in Parquet; Flink SQL, Spark's own stream-stream join and Kafka
Streams' foreign-key join, all on a real Kafka. Every system is a process that stays for the whole
run. It first answers once with its results written, which warms it up and is checked against
DuckDB's answer to the same question over the same rows; no ratio is printed for a system whose
results differ. Then come the rounds, system after system; the best round counts, and the peers
write nothing. Seconds of the processor, of a system's whole process tree, stand beside them.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
from confluent_kafka import TopicPartition
from environments import SPARK_400, PeerUnavailable, jars, python_with
from joins_data import fill_topics, write_files
from measure import print_table
from systems import Command, System, started
from windows import FLINK_KAFKA, SPARK_KAFKA

from headrace.client import Connection, consumer
from headrace.testing.broker import BrokerProcess
from headrace.testing.kafka import KafkaServer
from headrace.testing.kafka_process import KAFKA_VERSION, find_peer_java
from headrace.testing.maven import fetch_jars

HERE = Path(__file__).parent
SYSTEMS = ("ours", "flink", "spark", "kafka-streams")
KINDS = {"stream-stream": 3.0, "as of": 3.0, "table-table": 2.0, "group": 2.0}  # and the bar
INPUTS = {"stream-stream": 2, "as of": 2, "table-table": 2, "group": 1}
ONLY_OF = {"spark": ("stream-stream",), "kafka-streams": ("table-table",)}
KAFKA_STREAMS = (
    ("org.apache.kafka", "kafka-streams", KAFKA_VERSION),
    ("com.fasterxml.jackson.core", "jackson-databind", "2.19.2"),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)

NEWEST = "qualify row_number() over (partition by {key} order by {order} desc) = 1"
CUSTOMERS = f"(select * from customers {NEWEST.format(key='customer', order='version')})"
ORDERS = f"(select * from orders {NEWEST.format(key='order_id', order='line')})"
VERSIONS = f"(select * from customers {NEWEST.format(key='customer, changed_at', order='version')})"
JUDGE = {
    "stream-stream": """select click, search, words, clicked_at - "at" as waited from searches
        join clicks on search = search_id and clicked_at between "at" and "at" + 5000 where click >= 0""",
    "as of": f"""select o.line, order_id, amount, region from orders o asof left join {VERSIONS} c
        on customer_id = customer and placed_at >= changed_at where o.line >= 0""",
    "table-table": f"""select order_id, amount, region from {ORDERS} left join {CUSTOMERS}
        on customer_id = customer where order_id >= 0""",
    "group": f"""select region, count(*) as customers, sum(version)::bigint as newest
        from {CUSTOMERS} group by region""",
}
KEYS = {"stream-stream": "click", "as of": "line", "table-table": "order_id"}


def command_of(system: str) -> Command:
    """How a system is started; raises PeerUnavailable with the reason where it cannot be."""
    peers, surroundings = str(HERE / "joins_peers.py"), dict(os.environ)
    if system == "ours":
        return [sys.executable, str(HERE / "joins_ours.py")], surroundings
    if system == "flink":
        python = python_with("flink", "apache-flink==2.3.0")
        surroundings["PEER_JARS"] = jars("flink-kafka", FLINK_KAFKA, ("flink-sql-connector-kafka",))
        return [python, peers, system], surroundings
    if system == "kafka-streams":
        folder = fetch_jars("Kafka Streams", f"kafka-streams-{KAFKA_VERSION}", KAFKA_STREAMS)
        java = [str(find_peer_java()), "-Xmx4g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        return [*java, "-cp", f"{folder}/*", str(HERE / "KafkaStreamsPeer.java")], surroundings
    python = python_with(*SPARK_400)
    wanted = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
    surroundings["PEER_JARS"] = jars("spark-kafka-4.0.0", SPARK_KAFKA, wanted)
    return [python, peers, system], surroundings


# --- results ------------------------------------------------------------------------------------


def written(out: Path, bootstrap: str, right: pa.Table) -> pa.Table:
    """What a system wrote, with the right columns: Parquet or CSV files, or a topic of upserts."""
    files = [each for each in out.rglob("*") if each.is_file() and each.name[0] not in "._"]
    files = [each for each in files if "_spark_metadata" not in each.parts and each.stat().st_size]
    if not files:
        return _upserts(bootstrap, out.name, right.schema)
    return pa.concat_tables(_read(each, right.schema) for each in files)


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path).select(schema.names).cast(schema)
    nulls = pc.ConvertOptions(column_types=schema, strings_can_be_null=True)
    return pc.read_csv(path, pc.ReadOptions(column_names=schema.names), convert_options=nulls)


def _upserts(bootstrap: str, topic: str, schema: pa.Schema) -> pa.Table:
    """The newest value of each key."""
    newest: dict[bytes, bytes | None] = {}
    reader = consumer(Connection(bootstrap_servers=bootstrap), "judge")
    try:
        partitions = [
            TopicPartition(topic, each, 0) for each in reader.list_topics(topic).topics[topic].partitions
        ]
        left = sum(reader.get_watermark_offsets(each)[1] > 0 for each in partitions)
        ends = {each.partition: reader.get_watermark_offsets(each)[1] for each in partitions}
        reader.assign(partitions)
        while left:
            for message in reader.consume(10_000, 1.0):
                newest[message.key() or b""] = message.value()
            at = {each.partition: each.offset for each in reader.position(partitions)}
            left = sum(at[each] < end for each, end in ends.items() if end)
    finally:
        reader.close()
    rows = [json.loads(each) for each in newest.values() if each]
    return pa.Table.from_pylist(rows, schema)


def difference(right: pa.Table, found: pa.Table, kind: str) -> str:
    """What is wrong with the results, by an example; empty if they are equal, in whatever order."""
    condition = f"where {KEYS[kind]} >= 0" if kind in KEYS else ""
    with duckdb.connect() as judge:
        judge.register("wanted", right)
        judge.register("got", found)
        got = f"(select * from got {condition})"
        ((count,),) = judge.sql(f"select count(*) from {got}").fetchall()
        other = judge.sql(
            f"(select 'missing' as what, * from (from wanted except all from {got}) limit 2) union all "
            f"(select 'too much' as what, * from (from {got} except all from wanted) limit 2)"
        ).fetchall()
    return f"{count:,} rows, {right.num_rows:,} are right; {other}" if other else ""


def judged(folder: Path, kind: str) -> pa.Table:
    with duckdb.connect() as judge:
        for name in ("searches", "clicks", "orders", "customers"):
            judge.sql(f"create view {name} as from read_json('{folder / name}.json', format='nd')")
        return judge.sql(JUDGE[kind]).to_arrow_table()


# --- the run ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Cell:
    """One kind of join: the best seconds, and those of the processor, of every system that is right."""

    kind: str
    seconds: dict[str, float] = field(default_factory=dict)
    processor_s: dict[str, float] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)


def measure(cell: Cell, systems: list[System], logs: dict[str, str], right: pa.Table, rounds: int) -> None:
    for system in list(systems):
        if cell.kind not in ONLY_OF.get(system.name, KINDS):
            continue
        request = {"kind": cell.kind, "bootstrap": logs[system.name]}
        try:
            with tempfile.TemporaryDirectory(prefix="headrace-results-") as folder:
                out = Path(folder) / f"results-{cell.kind.replace(' ', '-')}"
                system.ask(out=str(out), **request)
                reason = difference(right, written(out, logs[system.name], right), cell.kind)
            if reason:
                cell.wrong[system.name] = reason
                continue
            for _ in range(rounds):
                before = system.processor_s()
                seconds = float(system.ask(out=None, **request)["seconds"])
                if seconds < cell.seconds.get(system.name, float("inf")):
                    cell.seconds[system.name] = seconds
                    cell.processor_s[system.name] = system.processor_s() - before
        except PeerUnavailable as error:
            print(f"  {system.name} is left out: {error}", file=sys.stderr)
            systems.remove(system)


def report(cells: list[Cell], rows: int) -> None:
    names = [f"{each}{what}" for each in SYSTEMS for what in (", rows/s", ", µs of processor")]
    table: list[tuple[str, ...]] = [("join", *names, "ours / best peer", "", "processor, best peer / ours")]
    for cell in cells:
        count = rows * INPUTS[cell.kind]
        figures = [
            figure
            for each in SYSTEMS
            for figure in (
                (f"{count / cell.seconds[each]:,.0f}", f"{cell.processor_s[each] / count * 1e6:.2f}")
                if each in cell.seconds
                else ("-", "-")
            )
        ]
        table.append((cell.kind, *figures, *_verdict(cell)))
        for name, reason in cell.wrong.items():
            print(f"  {cell.kind}: {name} is not compared: {reason}")
    print_table(table)


def _verdict(cell: Cell) -> tuple[str, str, str]:
    peers = [each for each in cell.seconds if each != "ours"]
    if "ours" not in cell.seconds or not peers:
        return "-", "", "-"
    ratio = min(cell.seconds[each] for each in peers) / cell.seconds["ours"]
    processor = min(cell.processor_s[each] for each in peers) / cell.processor_s["ours"]
    passed = "pass" if ratio >= KINDS[cell.kind] else "MISS"
    return f"{ratio:.2f}", f"≥ {KINDS[cell.kind]:g} {passed}", f"{processor:.2f}"


def compare(names: list[str], rows: int, rounds: int, kinds: list[str]) -> None:
    with contextlib.ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="headrace-joins-")))
        logs = {"ours": ending.enter_context(BrokerProcess(folder / "log")).bootstrap}
        if names != ["ours"]:
            try:
                kafka = ending.enter_context(KafkaServer())
                logs |= {each: kafka.bootstrap for each in names if each != "ours"}
            except PeerUnavailable as error:
                print(f"  no Kafka: {error}", file=sys.stderr)
                names = ["ours"]
        systems = ending.enter_context(started(names, command_of))
        files = write_files(folder / "files", rows)
        for bootstrap in set(logs.values()):
            fill_topics(bootstrap, rows)
        cells = [Cell(kind) for kind in kinds]
        for cell in cells:
            measure(cell, systems, logs, judged(files, cell.kind), rounds)
            seconds = ", ".join(f"{name} {each:.1f} s" for name, each in cell.seconds.items())
            print(f"  {cell.kind}: {seconds}", flush=True)
        report(cells, rows)
        memory = [(each.name, f"{each.peak_bytes >> 20:,}") for each in systems]
        print_table([("system", "largest memory, MB"), *memory])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(SYSTEMS))
    parser.add_argument("--kinds", default=",".join(KINDS))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what was started
    rows = given.rows or (500_000 if given.quick else 2_000_000)
    rounds = given.rounds or (1 if given.quick else 3)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores; {rows:,} rows in each topic")
    names = [each for each in SYSTEMS if each in given.only.split(",")]
    compare(names, rows, rounds, given.kinds.split(","))
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
