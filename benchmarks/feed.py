"""Claim: a core takes 600,000 events/s and more from the log to stamped rows, about what bare JSON costs.

    python benchmarks/feed.py [--events 400000] [--rounds 7]

Values of about 90 bytes and four fields are produced to a broker of ours. Printed is
the best of some rounds, in microseconds of this process's own CPU time per event: each step by itself, all of
them together, and, in the same rounds, the peer: pyarrow.json on the values alone,
already joined into one text. The second table has values that do not all look alike, so
that the JSON parser must read them.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.json as pj

from headrace.client import Connection, RawFetcher, admin, producer
from headrace.records.columns import lay_out
from headrace.streams.decode.json_values import parse_json
from headrace.streams.event_time import PartitionTime
from headrace.streams.feed.positions import FeedRange
from headrace.streams.feed.reader import RangeReading
from headrace.streams.feed.stamping import Stamper
from headrace.streams.spec import StreamSpec, value_fields
from headrace.testing.broker import BrokerProcess

BAR_US = 1e6 / 600_000


def even(count: int) -> Iterator[bytes]:
    kinds = (b"click", b"order", b"view")
    for at in range(count):
        yield b'{"user":"u%05d","amount":%d,"at":%d,"kind":"%s","ref":"r-%08d"}' % (
            at * 7919 % 10_000, at % 100, 1_767_225_600_000 + at, kinds[at % 3], at
        )  # fmt: skip


def uneven(count: int) -> Iterator[bytes]:
    """The same with an array in it, which no table can hold."""
    for value in even(count):
        yield value[:-1] + b',"tags":["a","b"]}'


def fill(connection: Connection, topic: str, values: Iterator[bytes]) -> int:
    from confluent_kafka.admin import NewTopic

    client = admin(connection)
    made = NewTopic(topic, 1, 1, config={"retention.ms": "-1"})
    client.create_topics([made])[topic].result(30)
    sender = producer(connection, linger_ms=20, batch_size=1 << 20, queue_buffering_max_messages=10_000_000)
    count = 0
    for count, value in enumerate(values, 1):
        sender.produce(topic, value, value[9:15], partition=0, timestamp=1_767_225_600_000 + count)
        if count % 10_000 == 0:
            sender.poll(0)
    if sender.flush(120):
        raise SystemExit("the broker did not take all records")
    return count


def measure(connection: Connection, topic: str, count: int, rounds: int) -> dict[str, float]:
    spec = StreamSpec(topic=topic, schema="user string, amount long, at long, kind string", event_time="at")
    with RawFetcher(connection) as fetcher:
        topic_id = fetcher.layout(topic).id
        runs = list(fetcher.fetch(topic, 0, 0, count))
        decoded = [lay_out(run) for run in runs]
        texts = [b"\n".join(each.values.column().to_pylist()) for each in decoded]
        span = FeedRange(
            topic=topic, topic_id=topic_id, partition=0, start=0, end=count,
            times={0: PartitionTime()}, idle=frozenset(), silence_us=0, now_us=0,
        )  # fmt: skip

        def stamp() -> None:
            stamper = Stamper(spec, 0, PartitionTime())
            for each in decoded:
                stamper.stamp(each)

        fields = value_fields(spec)
        steps: dict[str, Callable[[], object]] = {
            "fetch and check": lambda: drop(fetcher.fetch(topic, 0, 0, count)),
            "lay out": lambda: drop(lay_out(run) for run in runs),
            "read JSON": lambda: drop(parse_json(each.values, fields) for each in decoded),
            "read JSON and stamp": stamp,
            "all: log to stamped rows": lambda: drop(RangeReading(fetcher, spec, span)),
            "peer: pyarrow.json alone": lambda: drop(bare(text, fields) for text in texts),
        }
        best = dict.fromkeys(steps, float("inf"))
        for _ in range(rounds):
            for name, step in steps.items():
                began = time.process_time()
                step()
                best[name] = min(best[name], (time.process_time() - began) / count * 1e6)
    return best


def drop(results: Iterable[object]) -> None:
    """Takes one after the other and keeps none, as whoever follows the feed does."""
    for _ in results:
        pass


def bare(text: bytes, fields: pa.Schema) -> pa.Table:
    return pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pj.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore"),
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--events", type=int, default=400_000)
    options.add_argument("--rounds", type=int, default=7)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory)) as broker:
        connection = Connection(bootstrap_servers=broker.bootstrap)
        for topic, values in (("even", even), ("uneven", uneven)):
            size = len(next(values(1)))
            found = measure(connection, topic, fill(connection, topic, values(given.events)), given.rounds)
            print(f"\n{topic} values of {size} bytes, {given.events:,} events, load {os.getloadavg()[0]:.1f}")
            for name, cost_us in found.items():
                print(f"  {name:26} {cost_us:6.3f} µs/event  {1e6 / cost_us:12,.0f} events/s")
            whole, peer = found["all: log to stamped rows"], found["peer: pyarrow.json alone"]
            print(f"  all / peer                 {whole / peer:6.2f}")
            if topic == "even":
                verdict = "pass" if whole <= BAR_US else "MISS"
                print(f"  at least 600,000 events/s of one core: {verdict}")


if __name__ == "__main__":
    main()
