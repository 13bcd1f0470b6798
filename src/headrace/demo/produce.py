"""The traffic's process: sends the shop's events to the log until its standard input closes.

Changes of customers go to the shop's database, each in a transaction of its own, as in any shop. It has
no past: those of the last minutes are left out.

It begins with the shop's last minutes, so that there is something to see at once, and then
sends in real time. Killed and restarted, it continues where the log ends; events that were not
acknowledged by then never happened.

It prints one JSON document per line: {"pid": n, "acknowledged": {topic: n}, "faults":
{fault: n}, "failed": n, "committed": n, "behind_s": x}, about once a second and at the end, when
nothing is in flight any more. It ends with its parent, whose end closes the input.
"""

import argparse
import json
import os
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import admin as kafka_admin

from headrace.client import Connection, Identity, admin, producer
from headrace.client.topics import KEEP_ALL, TopicSettings, ensure_topics
from headrace.config import load
from headrace.demo.customers import CustomerDatabase, customers_at, write_change
from headrace.demo.traffic import TABLES, TOPICS, CustomerChange, ShopEvent, beginning, slot_at, traffic

__all__ = ["main"]

_kafka: Any = kafka_admin  # its types are not exported to type checkers
PARTITIONS = 2
_SLICE_S = 0.05
_MAX_SLICE = 2_000
_FLUSH_S = 120
_RETRY_S = 0.2
# What brokers answer about a partition that not all of them know yet.
_JUST_CREATED = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)


class Acknowledged:
    """Counts what the log acknowledged, what the database committed and, separately, what failed."""

    def __init__(self) -> None:
        self.topics: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.failed = 0
        self.committed = 0

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
        said = {**line, "committed": self.committed, "behind_s": round(behind_s, 1)}
        print(json.dumps(said), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--history-seconds", type=float, required=True)
    parser.add_argument("--customers", metavar="URL", required=True)
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    connection = Connection(
        bootstrap_servers=given.bootstrap, client_id="demo-shop", **load(Identity).identity_fields()
    )
    ensure_topics(
        connection,
        {
            topic: TopicSettings(partitions=PARTITIONS, configs=KEEP_ALL if topic in TABLES else {})
            for topic in TOPICS
        },
    )
    history = timedelta(seconds=given.history_seconds)
    begin = beginning(datetime.now(UTC), _last_time(connection), history)
    slot = slot_at(begin, given.rate) + 1
    with customers_at(given.customers) as customers:
        sender = _Sender(connection, customers)
        return sender.send_all(traffic(given.seed, given.rate, slot), given.rate, slot)


def _last_time(connection: Connection) -> datetime:
    """The timestamp of the newest record; the epoch if there is none."""
    client = admin(connection)
    timeout_s = connection.retry_timeout_ms / 1000
    known = client.list_topics(timeout=timeout_s).topics
    partitions = [TopicPartition(topic, each) for topic in TOPICS for each in known[topic].partitions]
    deadline = time.monotonic() + timeout_s
    while True:
        found = client.list_offsets({each: _kafka.OffsetSpec.max_timestamp() for each in partitions})
        try:
            newest = max(each.result(timeout_s).timestamp for each in found.values())
            break
        except KafkaException as error:
            if error.args[0].code() not in _JUST_CREATED or time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)
    return datetime.fromtimestamp(max(newest, 0) / 1000, UTC)


class _Sender:
    """Sends the events of every slot when its time has come."""

    def __init__(self, connection: Connection, customers: CustomerDatabase) -> None:
        self._client = producer(connection, enable_idempotence=True, linger_ms=50)
        self._customers = customers
        self._began_ms = time.time() * 1000
        self._done = Acknowledged()
        self._sent = 0

    def send_all(self, slots: Iterator[tuple[ShopEvent | CustomerChange, ...]], rate: int, slot: int) -> int:
        said, parent = time.monotonic(), os.getppid()
        while not _input_closed(0 if _slots_due(slot, rate) > 0 else _SLICE_S):
            for events in islice(slots, min(_slots_due(slot, rate), _MAX_SLICE)):
                slot += 1
                for event in events:
                    self._send(event)
            self._client.poll(0)
            if time.monotonic() - said >= 1:
                said = time.monotonic()
                self._done.say(_slots_due(slot, rate) / rate)
        _flush(self._client, parent)
        self._done.failed = self._sent - self._done.topics.total()
        self._done.say(0)
        return 0 if self._done.failed == 0 else 1

    def _send(self, event: ShopEvent | CustomerChange) -> None:
        if isinstance(event, ShopEvent):
            _send(self._client, event, self._done)
            self._sent += 1
        elif event.at_ms >= self._began_ms:
            write_change(self._customers, event)
            self._done.committed += 1


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
