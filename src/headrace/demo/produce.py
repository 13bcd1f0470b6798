"""The traffic's process: a Kafka client that sends the shop's events until its standard input closes.

It begins with the shop's last minutes, so that there is something to see at once, and then
sends in real time. Killed and restarted, it continues where the log ends; events that were not
acknowledged by then never happened.

It prints one JSON document per line: {"pid": n, "acknowledged": {topic: n}, "faults":
{fault: n}, "failed": n, "behind_s": x}, about once a second and at the end, when nothing is in
flight any more. It ends with its parent, whose end closes the input.
"""

import argparse
import json
import os
import select
import signal
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition
from confluent_kafka import admin as kafka_admin

from headrace.client import Connection, Identity, admin, producer
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.config import load
from headrace.demo.traffic import TOPICS, ShopEvent, beginning, slot_at, traffic

__all__ = ["main"]

_kafka: Any = kafka_admin  # its types are not exported to type checkers
PARTITIONS = 2
_SLICE_S = 0.05
_MAX_SLICE = 2_000
_FLUSH_S = 120


class Acknowledged:
    """Counts what the log acknowledged and, separately, what failed."""

    def __init__(self) -> None:
        self.topics: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.failed = 0

    def on_delivery(self, event: ShopEvent, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failed += 1
            print(f"not delivered: {error}", file=sys.stderr)
            return
        self.topics[event.topic] += 1
        if event.fault is not None:
            self.faults[event.fault] += 1

    def say(self, behind_s: float) -> None:
        line = {"pid": os.getpid(), "acknowledged": self.topics, "faults": self.faults, "failed": self.failed}
        print(json.dumps({**line, "behind_s": round(behind_s, 1)}), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--history-seconds", type=float, required=True)
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    connection = Connection(
        bootstrap_servers=given.bootstrap, client_id="demo-shop", **load(Identity).identity_fields()
    )
    ensure_topics(connection, {topic: TopicSettings(partitions=PARTITIONS) for topic in TOPICS})
    history = timedelta(seconds=given.history_seconds)
    begin = beginning(datetime.now(UTC), _last_time(connection), history)
    return _send_all(connection, given.seed, given.rate, slot_at(begin, given.rate) + 1)


def _last_time(connection: Connection) -> datetime:
    """The timestamp of the newest record; the epoch if there is none."""
    client = admin(connection)
    timeout_s = connection.retry_timeout_ms / 1000
    known = client.list_topics(timeout=timeout_s).topics
    partitions = [TopicPartition(topic, each) for topic in TOPICS for each in known[topic].partitions]
    found = client.list_offsets({each: _kafka.OffsetSpec.max_timestamp() for each in partitions})
    newest = max(each.result(timeout_s).timestamp for each in found.values())
    return datetime.fromtimestamp(max(newest, 0) / 1000, UTC)


def _send_all(connection: Connection, seed: int, rate: int, slot: int) -> int:
    """Sends the events of every slot when its time has come."""
    done = Acknowledged()
    client = producer(connection, enable_idempotence=True, linger_ms=50)
    slots = traffic(seed, rate, slot)
    sent, said, parent = 0, time.monotonic(), os.getppid()
    while not _input_closed(0 if _slots_due(slot, rate) > 0 else _SLICE_S):
        for events in islice(slots, min(_slots_due(slot, rate), _MAX_SLICE)):
            slot += 1
            for event in events:
                _send(client, event, done)
                sent += 1
        client.poll(0)
        if time.monotonic() - said >= 1:
            said = time.monotonic()
            done.say(_slots_due(slot, rate) / rate)
    _flush(client, parent)
    done.failed = sent - done.topics.total()
    done.say(0)
    return 0 if done.failed == 0 else 1


def _flush(client: Any, parent: int) -> None:
    """Waits for records in flight, unless the parent is gone: then the log is gone, too."""
    deadline = time.monotonic() + _FLUSH_S
    while client.flush(1) and os.getppid() == parent and time.monotonic() < deadline:
        pass


def _slots_due(slot: int, rate: int) -> int:
    return max(0, slot_at(datetime.now(UTC), rate) - slot)


def _input_closed(wait_s: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], wait_s)
    return bool(ready)


def _send(client: Any, event: ShopEvent, done: Acknowledged) -> None:
    on_delivery = partial(done.on_delivery, event)
    while True:
        try:
            client.produce(
                event.topic,
                event.value,
                key=event.key,
                timestamp=event.timestamp_ms,
                on_delivery=on_delivery,
            )
            return
        except BufferError:  # the log is slower than the shop: wait for it
            client.poll(0.1)


if __name__ == "__main__":
    sys.exit(main())
