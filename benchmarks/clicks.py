"""The events that `windows.py` and `freshness.py` are about, the same for everybody.

Clicks of about 90 bytes of JSON, 10,000 a second of event time, up to two seconds out of
order, by users drawn at random. The last one of each partition lies a day ahead, so that
every window before it closes; its user is "end", and no result of it counts.
"""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from headrace.client import Connection, admin, producer

__all__ = ["PARTITIONS", "fill_topic", "values", "write_files"]

PARTITIONS = 4
START_MS = 1_767_225_600_000
RATE = 10_000  # events in a second of event time
_BLOCK = 100_000
_DAY_MS = 86_400_000


def values(events: int, keys: int, seed: int = 1) -> Iterator[tuple[int, bytes]]:
    """The time of each event, and its JSON."""
    chance = np.random.default_rng(seed)
    for begin in range(0, events, _BLOCK):
        count = min(_BLOCK, events - begin)
        times = START_MS + (begin + np.arange(count)) * 1000 // RATE - chance.integers(0, 2000, count)
        users, amounts = chance.integers(0, keys, count), chance.integers(0, 1000, count)
        for at, user, amount in zip(times.tolist(), users.tolist(), amounts.tolist(), strict=True):
            yield at, b'{"user":"u%07d","amount":%d,"at":%d,"kind":"click","ref":"r-%09d"}' % (
                user, amount, at, at % 999_999_937
            )  # fmt: skip
    end = START_MS + events * 1000 // RATE + _DAY_MS
    for _ in range(PARTITIONS):
        yield end, json.dumps({"user": "end", "amount": 0, "at": end}, separators=(",", ":")).encode()


def write_files(folder: Path, events: int, keys: int, files: int = 8) -> Path:
    """The events as JSON lines, spread over files that each cover a part of the time."""
    folder.mkdir(parents=True)
    share = -(-(events + PARTITIONS) // files)
    source = values(events, keys)
    for number in range(files):
        with (folder / f"part-{number}.json").open("wb") as file:
            file.writelines(value + b"\n" for _, value in islice(source, share))
    return folder


def fill_topic(bootstrap: str, topic: str, events: int, keys: int) -> None:
    """The events in turn over the topic's partitions, each with its event time as the record's."""
    from confluent_kafka.admin import NewTopic

    connection = Connection(bootstrap_servers=bootstrap)
    made = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})
    client = admin(connection)  # must live until the answer is there
    client.create_topics([made])[topic].result(30)
    sender = producer(connection, linger_ms=20, batch_size=1 << 20, queue_buffering_max_messages=1_000_000)
    for number, (at, value) in enumerate(values(events, keys)):
        sender.produce(topic, value, partition=number % PARTITIONS, timestamp=at)
        if number % 10_000 == 0:
            sender.poll(0)
        while len(sender) > 500_000:
            sender.poll(0.05)
    if sender.flush(120):
        raise SystemExit(f"the broker at {bootstrap} did not take all records")
