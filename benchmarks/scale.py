"""Claim: where tasks write, the driver's processor time is below 0.3 µs an event, however many tasks.

    python benchmarks/scale.py [--events 1000000] [--tasks 1 8] [--cases topic rows windows] [--workers]

The same application with the driver as the writer and with its tasks, in turns, on a local Spark of as
many threads as `--tasks` says: a derived topic, a view of every record, and a windowed view in which
nearly every event changes a row, in Parquet and, where one can be had, in PostgreSQL. Printed is the
processor time of the driver's Python process for an event, after the first micro-batch.

`--workers` runs windows and a view of every record on a Spark standalone cluster on loopback with one and
with two workers of one core each: events a second after the first micro-batch, and the ratio, which should be
1.8. So that log and driver do not run out of cores on a small machine, each worker gets the same share of
one core (`--share`, a quota of Linux's control groups, which needs root), whatever else is free. Printed too
is the processor time for an event, of the workers and of the driver with its Java: what each would need on
larger machines.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from clicks import values
from confluent_kafka.admin import NewTopic
from measure import print_table

from headrace.client import Connection, admin, producer
from headrace.java import find_java, spark_environment
from headrace.testing.broker import BrokerProcess
from headrace.testing.kafka import PeerUnavailable
from headrace.testing.postgres import PostgresServer

HERE = Path(__file__).parent
BAR_US, BAR_WORKERS = 0.3, 1.8
BATCHES = 4
_PERIOD_US = 20_000


def fill(bootstrap: str, topic: str, events: int, partitions: int) -> None:
    connection = Connection(bootstrap_servers=bootstrap)
    client = admin(connection)
    client.create_topics([NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})])[topic].result(30)
    sender = producer(connection, linger_ms=20, batch_size=1 << 20, queue_buffering_max_messages=1_000_000)
    for number, (at, value) in enumerate(values(events, keys=1_000_000)):
        sender.produce(topic, value, partition=number % partitions, timestamp=at)
        while len(sender) > 500_000:
            sender.poll(0.05)
    if sender.flush(120):
        raise SystemExit(f"the broker at {bootstrap} did not take all records")


def run(**request: Any) -> dict[str, Any]:
    wanted = {
        "store": None,
        "sinks": None,
        "cores": 2,
        "master": None,
        "executors": [],
        "conf": {},
        **request,
    }
    done = subprocess.run(
        [sys.executable, HERE / "scale_ours.py", json.dumps(wanted)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextlib.contextmanager
def postgres() -> Iterator[PostgresServer | None]:
    """A PostgreSQL; None where there is none to be had."""
    try:
        server = PostgresServer()
    except PeerUnavailable as reason:
        print(f"without PostgreSQL: {reason}")
        yield None
    else:
        with server:
            yield server


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Spark standalone cluster on loopback: its master, and the processes of its workers."""

    master: str
    workers: tuple[int, ...]


@contextlib.contextmanager
def share_of_a_core(pid: int, share: float) -> Iterator[None]:
    """What the process starts from now on gets so much of one core, and ahead of others."""
    groups = Path("/sys/fs/cgroup")
    is_first_version = (groups / "cpu").is_dir()
    group = (groups / "cpu" if is_first_version else groups) / f"headrace-scale-{pid}"
    group.mkdir()
    try:
        quota, period = str(int(share * _PERIOD_US)), str(_PERIOD_US)
        settings = {"cpu.max": f"{quota} {period}", "cpu.weight": "10000"}
        if is_first_version:
            settings = {"cpu.cfs_period_us": period, "cpu.cfs_quota_us": quota, "cpu.shares": "100000"}
        for name, value in {**settings, "cgroup.procs": str(pid)}.items():
            (group / name).write_text(value)
        yield
    finally:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):  # the last processes are still ending
                group.rmdir()
                break
            time.sleep(0.1)


@contextlib.contextmanager
def standalone(workers: int, share: float) -> Iterator[Cluster]:
    """A cluster whose workers have one core each, of which they get that share."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    java = spark_environment(find_java())
    home = str(Path(pyspark.__file__).parent)
    environment = {
        **os.environ,
        **java,
        "SPARK_HOME": home,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    spark_class = f"{home}/bin/spark-class"
    package = "org.apache.spark.deploy"
    master = f"spark://127.0.0.1:{port}"
    here = ["--host", "127.0.0.1", "--webui-port", "0"]
    worker = [f"{package}.worker.Worker", *here, "--cores", "1", "--memory", "2g", master]
    commands = [[f"{package}.master.Master", *here, "--port", str(port)], *[worker] * workers]
    with tempfile.TemporaryDirectory(prefix="headrace-spark-") as folder, contextlib.ExitStack() as ending:
        pids = []
        for number, command in enumerate(commands):
            log = ending.enter_context((Path(folder) / f"{number}.log").open("wb"))
            process = subprocess.Popen(
                [spark_class, *command], env=environment, cwd=folder, stdout=log, stderr=log
            )
            if number == 0:
                _wait_listening(port)
            else:
                ending.enter_context(share_of_a_core(process.pid, share))
                pids.append(process.pid)
            ending.callback(_end, process)
        yield Cluster(master, tuple(pids))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Spark's daemons may wait for each other when they are told to stop."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_listening(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if time.monotonic() > deadline:
            raise SystemExit("Spark's master does not listen")
        time.sleep(0.2)


def driver_times(
    bootstrap: str, topic: str, given: argparse.Namespace, server: PostgresServer | None
) -> None:
    cases = [("derived topic", "topic", None)] if "topic" in given.cases else []
    for case, title in (("rows", "every record"), ("windows", "windows")):
        if case in given.cases:
            cases += [
                (f"{title}, {kind}", case, kind)
                for kind in ("Parquet", "PostgreSQL")
                if kind == "Parquet" or server is not None
            ]
    table = [("output", "tasks", "driver writes, µs", "tasks write, µs", "bar")]
    for title, case, store in cases:
        for tasks in given.tasks:
            found = {
                sinks: run(
                    bootstrap=bootstrap,
                    topic=topic,
                    case=case,
                    store=server.url() if server and store == "PostgreSQL" else store and "parquet",
                    sinks=sinks,
                    cores=tasks,
                    records=given.events // BATCHES,
                )["driver_us"]
                for sinks in ("driver", "executors")
            }
            verdict = _verdict(found["executors"] < BAR_US)
            table.append(
                (
                    title,
                    str(tasks),
                    f"{found['driver']:.2f}",
                    f"{found['executors']:.2f}",
                    f"< {BAR_US} {verdict}",
                )
            )
            print(*table[-1], sep="\t", flush=True)
    print_table(table)


def worker_rates(bootstrap: str, topic: str, given: argparse.Namespace) -> None:
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for workers in (1, 2):
        with standalone(workers, given.share) as cluster:
            for case in ("rows", "windows"):
                found[case, workers] = run(
                    bootstrap=bootstrap,
                    topic=topic,
                    case=case,
                    store="parquet",
                    master=cluster.master,
                    executors=cluster.workers,
                    conf={
                        "spark.driver.host": "127.0.0.1",
                        "spark.driver.bindAddress": "127.0.0.1",
                        "spark.executor.memory": "1g",
                        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
                        "spark.cores.max": str(workers),
                    },
                    records=given.events // BATCHES,
                )
    cores = len(os.sched_getaffinity(0))
    print(f"each worker has {given.share:g} of a core, everything else the rest of {cores}")
    table = [("output", "workers", "events/s", "executors, µs", "driver and Java, µs", "ratio")]
    for (case, workers), each in found.items():
        ratio = each["rate"] / found[case, 1]["rate"]
        verdict = "" if workers == 1 else f"{ratio:.2f} ≥ {BAR_WORKERS} {_verdict(ratio >= BAR_WORKERS)}"
        rate = f"{each['rate']:,.0f}"
        table.append(
            (case, str(workers), rate, f"{each['executors_us']:.2f}", f"{each['all_us']:.2f}", verdict)
        )
    print_table(table)


def _verdict(passed: bool) -> str:
    return "pass" if passed else "MISS"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--tasks", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--cases", nargs="*", default=["topic", "rows", "windows"])
    parser.add_argument("--workers", action="store_true")
    parser.add_argument("--share", type=float, default=0.4)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what was started
    print(f"{given.events:,} events, {given.partitions} partitions, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder)) as broker, postgres() as server:
        fill(broker.bootstrap, "clicks", given.events, given.partitions)
        if given.cases:
            driver_times(broker.bootstrap, "clicks", given, server)
        if given.workers:
            worker_rates(broker.bootstrap, "clicks", given)


if __name__ == "__main__":
    main()
