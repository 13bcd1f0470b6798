"""The producer's process: sends orders until its standard input closes, then says what was acknowledged.

It prints one JSON document a line: {"acknowledged": n} about once a second, and at
the end {"acknowledged": n, "failed": n, "minutes": {minute: [orders, cents]}}. It
ends with its parent, whose end closes the input.
"""

import argparse
import json
import select
import signal
import sys
import time

import orjson
from confluent_kafka import KafkaError, Message

from headrace.client import Connection, producer
from headrace.demo.orders import Order, Tally, orders

__all__ = ["main"]

_SLICES_PER_SECOND = 20


class Acknowledged:
    """Counts what the log acknowledged; an order that failed is counted apart."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.count = self.failed = 0

    def on_delivery(self, order: Order, error: KafkaError | None) -> None:
        if error is not None:
            self.failed += 1
            print(f"not delivered: {error}", file=sys.stderr)
            return
        self.count += 1
        self.tally.add(order.minute, order.amount_cents)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to end
    done = Acknowledged()
    client = producer(Connection(bootstrap_servers=given.bootstrap, client_id="demo-shop"), linger_ms=5)
    source = orders(given.seed, given.rate)
    began, sent, said = time.monotonic(), 0, 0.0
    while not _input_closed(1 / _SLICES_PER_SECOND):
        now = time.monotonic() - began
        for _ in range(int(now * given.rate) - sent):
            _send(client, given.topic, next(source), done)
            sent += 1
        client.poll(0)
        if now - said >= 1:
            said = now
            print(json.dumps({"acknowledged": done.count}), flush=True)
    client.flush(30)
    minutes = {minute: list(totals) for minute, totals in done.tally.minutes.items()}
    print(
        json.dumps({"acknowledged": done.count, "failed": sent - done.count, "minutes": minutes}), flush=True
    )
    return 0 if done.count == sent else 1


def _input_closed(wait_s: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], wait_s)
    return bool(ready)


def _send(client: object, topic: str, order: Order, done: Acknowledged) -> None:
    def on_delivery(error: KafkaError | None, _: Message) -> None:
        done.on_delivery(order, error)

    key, value = str(order.customer_id).encode(), orjson.dumps(order.fields())
    while True:
        try:
            client.produce(topic, value, key=key, on_delivery=on_delivery)  # type: ignore[attr-defined]
            return
        except BufferError:  # the log is slower than the shop: wait for it
            client.poll(0.1)  # type: ignore[attr-defined]


if __name__ == "__main__":
    sys.exit(main())
