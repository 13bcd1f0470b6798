"""Claim: an event is visible in the views in at most 0.7 of the time that Spark's own operators need.

    python benchmarks/freshness.py [--rate 10000] [--seconds 30] [--warmup 15] [--only ours]

Events are appended at a steady rate; three views follow them (by user per minute; by page
per ten seconds; by page over a minute, every ten seconds), each kept in SQLite and updated
from the first event on. Ours is one application, hence one query, on our log. The peer is
three queries of Spark's own operators on a real Kafka with Spark's connector, JVM only but
for the upsert into SQLite. Printed is the time from the call that appends an event to the
commit that shows it, of every event and view after the warm-up.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from environments import SPARK_400, PeerUnavailable, jars, python_with
from measure import print_table
from windows import SPARK_KAFKA

from headrace.client import Connection, admin, producer
from headrace.testing.broker import BrokerProcess
from headrace.testing.kafka import KafkaServer

HERE = Path(__file__).parent
PARTITIONS = 4
TOPIC = "clicks"
BAR = 0.7
TICK_S = 0.005
PAGES = ("home", "cart", "pay")
Times = npt.NDArray[np.float64]


def make_topic(bootstrap: str) -> None:
    from confluent_kafka.admin import NewTopic

    client = admin(Connection(bootstrap_servers=bootstrap))
    client.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)


def append(bootstrap: str, rate: int, seconds: float) -> Times:
    """Appends events in turn over the partitions; the time at which each was handed over."""
    sender = producer(Connection(bootstrap_servers=bootstrap), linger_ms=1)
    chance = np.random.default_rng(1)
    users = chance.integers(0, 1000, int(rate * seconds)).tolist()
    appended: list[float] = []
    began = time.time()
    while len(appended) < len(users):
        now = time.time()
        for number in range(len(appended), min(len(users), int((now - began) * rate))):
            value = {"user": f"u{users[number]:05}", "amount": number % 100, "at": int(now * 1000)}
            value["page"] = PAGES[number % 3]
            sender.produce(TOPIC, json.dumps(value).encode(), partition=number % PARTITIONS)
            appended.append(now)
        sender.poll(0)
        time.sleep(TICK_S)
    if sender.flush(60):
        raise SystemExit(f"the broker at {bootstrap} did not take all records")
    return np.array(appended)


def delays(appended: Times, seen: list[Any], skip: int) -> Times:
    """Milliseconds to the first batch of each view that reached an event, for those that were reached."""
    by_view: dict[str, list[tuple[float, dict[str, int]]]] = defaultdict(list)
    for view, at, ends in seen:
        by_view[view].append((at, ends))
    found = []
    for batches in by_view.values():
        batches.sort(key=lambda each: each[0])
        for partition in range(PARTITIONS):
            reached = [(at, ends[str(partition)]) for at, ends in batches if str(partition) in ends]
            offsets = np.maximum.accumulate([end for _, end in reached])
            times = np.array([at for at, _ in reached])
            own = appended[partition::PARTITIONS]
            batch = np.searchsorted(offsets, np.arange(len(own)), side="right")
            valid = (batch < len(times)) & (np.arange(len(own)) >= skip // PARTITIONS)
            found.append((times[batch[valid]] - own[valid]) * 1000)
    return np.concatenate(found)


def run(command: list[str], surroundings: dict[str, str], bootstrap: str, given: argparse.Namespace) -> Times:
    """One side: started, warmed up and measured in one go."""
    make_topic(bootstrap)
    with tempfile.TemporaryFile() as messages:
        side = subprocess.Popen(
            [*command, bootstrap, TOPIC],
            env=surroundings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            text=True,
        )
        assert side.stdin is not None and side.stdout is not None
        lines = (line for line in side.stdout if line.startswith("{"))
        _answer(lines, messages)
        appended = append(bootstrap, given.rate, given.warmup + given.seconds)
        time.sleep(5)  # the last events' batches
        side.stdin.close()
        answer = _answer(lines, messages)
        side.wait(60)
    if given.verbose:
        for each in answer["batches"][-12:]:
            print("   ", each)
    return delays(appended, answer["seen"], int(given.rate * given.warmup))


def _answer(lines: Iterator[str], messages: IO[bytes]) -> dict[str, Any]:
    """The next line of a side; if there is none, or nothing became visible, its last words end the run."""
    answer: dict[str, Any] = json.loads(next(lines, "{}"))
    if not answer or answer.get("seen") == []:
        messages.seek(0)
        words = messages.read().decode(errors="replace")[-2000:]
        raise SystemExit(f"no event became visible (too short a run, or a failure):\n{words}")
    return answer


def ours(given: argparse.Namespace) -> Times:
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder)) as broker:
        return run(
            [sys.executable, str(HERE / "freshness_ours.py")], dict(os.environ), broker.bootstrap, given
        )


def spark(given: argparse.Namespace) -> Times:
    wanted = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
    surroundings = dict(os.environ, PEER_JARS=jars("spark-kafka-4.0.0", SPARK_KAFKA, wanted))
    python = python_with(*SPARK_400)
    with KafkaServer() as kafka:
        return run([python, str(HERE / "freshness_spark.py")], surroundings, kafka.bootstrap, given)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--warmup", type=float, default=15)
    parser.add_argument("--only", default="ours,spark")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what was started
    print(f"{given.rate:,} events/s, three views, load {os.getloadavg()[0]:.1f}")
    found: dict[str, tuple[float, ...]] = {}
    for name, side in (("ours", ours), ("spark", spark)):
        if name in given.only.split(","):
            with contextlib.suppress(PeerUnavailable):
                times = side(given)
                found[name] = tuple(np.percentile(times, [50, 99, 100]))
    titles = ("", "p50 ms", "p99 ms", "worst ms")
    print_table([titles, *[(name, *[f"{each:,.0f}" for each in row]) for name, row in found.items()]])
    if len(found) == 2:
        for place, title in enumerate(("p50", "p99")):
            ratio = found["ours"][place] / found["spark"][place]
            print(f"{title}: ours / spark {ratio:.2f}  ≤ {BAR} {'pass' if ratio <= BAR else 'MISS'}")


if __name__ == "__main__":
    main()
