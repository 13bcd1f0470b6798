"""The traffic's process: sends events until its standard input closes, then says what was acknowledged.

It prints one JSON document a line: {"acknowledged": {topic: n}, "faults": {fault: n},
"failed": n}, about once a second and at the end. It ends with its parent, whose end
closes the input.
"""

import argparse
import json
import select
import signal
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import KafkaError, Message

from headrace.client import Connection, producer
from headrace.demo.traffic import SHOP_SECONDS_PER_SECOND, Event, traffic

__all__ = ["main"]

_SLICES_PER_SECOND = 20


class Acknowledged:
    """Counts what the log acknowledged; what failed is counted apart."""

    def __init__(self) -> None:
        self.topics: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.failed = 0

    def on_delivery(self, event: Event, error: KafkaError | None) -> None:
        if error is not None:
            self.failed += 1
            print(f"not delivered: {error}", file=sys.stderr)
            return
        self.topics[event.topic] += 1
        if event.fault is not None:
            self.faults[event.fault] += 1

    def say(self) -> None:
        line = {"acknowledged": self.topics, "faults": self.faults, "failed": self.failed}
        print(json.dumps(line), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    done = Acknowledged()
    client = producer(Connection(bootstrap_servers=given.bootstrap, client_id="demo-shop"), linger_ms=5)
    # Early enough for the fast clock not to overtake ours, were the demo to last twice as long.
    opening = datetime.now(UTC) - timedelta(seconds=2 * given.seconds * SHOP_SECONDS_PER_SECOND + 600)
    source = traffic(given.seed, given.rate, opening)
    began, sent, said = time.monotonic(), 0, 0.0
    while not _input_closed(1 / _SLICES_PER_SECOND):
        now = time.monotonic() - began
        for _ in range(int(now * given.rate) - sent):
            _send(client, next(source), done)
            sent += 1
        client.poll(0)
        if now - said >= 1:
            said = now
            done.say()
    client.flush(60)
    done.failed = sent - done.topics.total()
    done.say()
    return 0 if done.failed == 0 else 1


def _input_closed(wait_s: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], wait_s)
    return bool(ready)


def _send(client: Any, event: Event, done: Acknowledged) -> None:
    def on_delivery(error: KafkaError | None, _: Message) -> None:
        done.on_delivery(event, error)

    while True:
        try:
            client.produce(event.topic, event.value, key=event.key, on_delivery=on_delivery)
            return
        except BufferError:  # the log is slower than the shop: wait for it
            client.poll(0.1)


if __name__ == "__main__":
    sys.exit(main())
