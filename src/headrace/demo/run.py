"""Runs the demonstration from start to verdict."""

import contextlib
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.client import Connection, admin
from headrace.demo.children import LogProcess, ProducerProcess
from headrace.demo.display import Display, money, total
from headrace.demo.job import start_query
from headrace.demo.orders import Totals
from headrace.demo.table import MinuteTable
from headrace.errors import ConfigError
from headrace.streams import local_spark

__all__ = ["DemoOptions", "differences", "run"]

_PARTITIONS = 4
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """How much to show, and where to keep it."""

    seconds: float
    rate: int
    seed: int
    bootstrap: str | None
    live: bool | None


def run(
    seconds: float | None = None,
    *,
    rate: int = 2000,
    data: str | Path | None = None,
    bootstrap: str | None = None,
    seed: int = 7,
    live: bool | None = None,
) -> int:
    """Shows orders being counted for `seconds` after Spark is ready; 0 if the result is exactly right.

    1 says that SQLite and the producer differ (each difference is printed), 130 that
    Ctrl-C ended it. Everything is kept in `data`, an empty folder, or in a temporary
    one that is removed. `bootstrap` names a log to use instead of starting one.
    """
    options = DemoOptions(
        seconds=20 if seconds is None else seconds, rate=rate, seed=seed, bootstrap=bootstrap, live=live
    )
    with _folder(data) as folder, Display(live=live) as display:
        try:
            return _run(options, folder, display)
        except KeyboardInterrupt:
            display.say("interrupted; everything was stopped")
            return _INTERRUPTED


def differences(produced: Mapping[str, Totals], stored: Mapping[str, Totals]) -> list[str]:
    """What the table has that was not produced, and the other way round, minute by minute."""
    return [
        f"{minute}: produced {produced.get(minute)}, SQLite has {stored.get(minute)}"
        for minute in sorted({*produced, *stored})
        if produced.get(minute) != stored.get(minute)
    ]


def _run(options: DemoOptions, folder: Path, display: Display) -> int:
    with contextlib.ExitStack() as ending:
        bootstrap = options.bootstrap or _start_log(folder, display, ending)
        topic = _create_topic(bootstrap, ending, keep=options.bootstrap is None)
        producer = _start_producer(options, bootstrap, topic, display, ending)
        table = MinuteTable(folder / "orders.db")
        display.say("Spark: starting, which takes a few seconds")
        spark = _start_spark(ending)
        started = threading.Event()

        def on_batch(batch_id: int) -> None:
            display.counted(batch_id, table.minutes())
            started.set()

        query = start_query(
            spark,
            table,
            bootstrap=bootstrap,
            topic=topic,
            checkpoint=str(folder / "checkpoint"),
            on_batch=on_batch,
        )
        ending.callback(query.stop)
        display.say("Spark: counting orders per minute into SQLite")
        _watch(query, started, options.seconds)
        last = producer.finish()
        display.say(f"producer: done, {last['acknowledged']:,} orders acknowledged, {last['failed']:,} not")
        query.processAllAvailable()
        produced = {minute: Totals(*totals) for minute, totals in last["minutes"].items()}
        return _verdict(produced, table.minutes(), display)


def _watch(query: StreamingQuery, started: threading.Event, seconds: float) -> None:
    """Waits for the first result and then for `seconds`; raises what the query raises."""
    while not started.is_set():
        query.awaitTermination(1)
    query.awaitTermination(max(1, round(seconds)))


def _verdict(produced: Mapping[str, Totals], stored: Mapping[str, Totals], display: Display) -> int:
    display.result(stored)
    wrong = differences(produced, stored)
    for line in wrong:
        display.say(f"DIFFERENT {line}")
    if wrong or not produced:
        display.say("the table is not what was produced" if produced else "nothing was produced")
        return 1
    orders, cents = total(stored)
    display.say(f"checked: SQLite holds exactly what was produced, {orders:,} orders, {money(cents)}")
    return 0


# --- what it starts, each ended by the stack in reverse order ---------------------------------


def _start_log(folder: Path, display: Display, ending: contextlib.ExitStack) -> str:
    log = LogProcess(folder / "log")
    ending.callback(log.end)
    display.say(f"log: listening on {log.bootstrap} (process {log.pid}), data in {folder / 'log'}")
    return log.bootstrap


def _create_topic(bootstrap: str, ending: contextlib.ExitStack, *, keep: bool) -> str:
    """A topic of this run's own, so that the count can be exact on a log that others use too."""
    client = admin(Connection(bootstrap_servers=bootstrap))
    name = "orders" if keep else f"headrace-demo-orders-{uuid.uuid4().hex[:8]}"
    client.create_topics([NewTopic(name, _PARTITIONS, 1)])[name].result(30)
    if not keep:
        ending.callback(lambda: client.delete_topics([name])[name].result(30))
    return name


def _start_producer(
    options: DemoOptions, bootstrap: str, topic: str, display: Display, ending: contextlib.ExitStack
) -> ProducerProcess:
    producer = ProducerProcess(
        bootstrap=bootstrap, topic=topic, rate=options.rate, seed=options.seed, on_progress=display.produced
    )
    ending.callback(producer.end)
    display.say(f"producer: {options.rate:,} orders a second to topic {topic} (process {producer.pid})")
    return producer


def _start_spark(ending: contextlib.ExitStack) -> SparkSession:
    running = SparkSession.getActiveSession()
    spark = local_spark("headrace-demo")
    if running is None:  # a session that was there before is its owner's to stop
        ending.callback(spark.stop)
    return spark


@contextlib.contextmanager
def _folder(data: str | Path | None) -> Iterator[Path]:
    if data is None:
        temporary = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return
    folder = Path(data)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; name an empty folder, or none to use a temporary one")
    yield folder
