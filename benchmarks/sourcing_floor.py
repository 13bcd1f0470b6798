"""What the log itself allows event sourcing: the least that a batch of commands costs.

One program, one batch after the other: a Produce request with the commands, then a transaction with as
many events and answers. Every record is there before the clock starts, nobody decides anything, and
nobody reads. Whatever serves commands through this log does all of this, and can only be slower.

    .venv/bin/python benchmarks/sourcing_floor.py [--quick] [--seconds S]
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import psutil
from measure import print_table

from headrace.client import Connection
from headrace.client.connect.brokers import Brokers
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.client.write import BatchProducer, OutputRecord
from headrace.records import Codec, Record, encode_batch
from headrace.testing.broker import BrokerProcess
from headrace.wire import Api

COMMANDS, EVENTS, ANSWERS = "commands", "events", "answers"
BATCHES = (1, 8, 32, 64)
PRODUCE, METADATA = 9, 12
KEY, ID = b"17-3", b"0123456789abcdef0123456789abcdef"
COMMAND_HEADERS = (("name", b"Deposit"), ("id", ID), ("schema", b"1"))
EVENT_HEADERS = (
    ("type", b"Deposited"),
    ("schema", b"1"),
    ("version", b"12"),
    ("command", ID),
    ("command_name", b"Deposit"),
    ("at", b"1763497177123"),
    ("correlation", ID),
)


def carry_out(connection, commands, seconds):
    """Batches a second, and how many there were."""
    brokers = Brokers(connection, {Api.PRODUCE: PRODUCE, Api.METADATA: METADATA})
    channel = brokers.any()
    producer = BatchProducer(connection, f"floor-{commands}", codec=Codec.NONE)
    producer.take_over()
    now_ms = int(time.time() * 1000)
    sent = [Record(at, now_ms, KEY, b'{"amount":1}', COMMAND_HEADERS) for at in range(commands)]
    batch = encode_batch(sent)
    sent = {"name": COMMANDS, "partition_data": [{"index": 0, "records": bytes(batch)}]}
    request = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": [sent]}
    event, answer = b'{"data":{"amount":1}}' + b" " * 120, b" " * 300
    records = [OutputRecord(EVENTS, KEY, event, EVENT_HEADERS, 0, now_ms)] * commands
    records += [OutputRecord(ANSWERS, ID, answer, (), 0, now_ms)] * commands
    done, began = 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        brokers.ask(channel, Api.PRODUCE, request)
        producer.transact(records, lambda _: ())
        done += 1
    taken = time.perf_counter() - began
    producer.close()
    brokers.close()
    return done / taken, done


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--quick", action="store_true", help="half a second each: shows that it works")
    given = parser.parse_args()
    rows = []
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("HEADRACE_BENCH_DIR")) as folder,
        BrokerProcess(Path(folder) / "log") as broker,
    ):
        connection = Connection(bootstrap_servers=broker.bootstrap)
        ensure_topics(connection, {each: TopicSettings(partitions=1) for each in (COMMANDS, EVENTS, ANSWERS)})
        processes = [psutil.Process(pid) for pid in (broker.pid, os.getpid())]
        carry_out(connection, 1, 0.5)  # warm
        for commands in BATCHES:
            before_s = sum(sum(each.cpu_times()[:2]) for each in processes)
            rate, batches = carry_out(connection, commands, 0.5 if given.quick else given.seconds)
            spent_s = sum(sum(each.cpu_times()[:2]) for each in processes) - before_s
            rows.append((commands, 1000 / rate, commands * rate, 1e6 * spent_s / batches / commands))
    names = ("commands in a batch", "ms for one batch", "commands/s", "processor µs for one command")
    print_table([names, *((str(n), f"{ms:.1f}", f"{each:,.0f}", f"{us:,.0f}") for n, ms, each, us in rows)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
