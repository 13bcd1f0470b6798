"""The topics that `joins.py` is about, the same for everybody, and as files for the judge.

Searches and the clicks on them, orders and the customers who place them: JSON of about 90 bytes,
10,000 rows a second of event time, up to two seconds out of order, but customers in order, as a
database sends its changes. The last row of each partition lies a day ahead, so that whatever waits
for time to pass comes out; its ids are negative, and no result of it counts.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from confluent_kafka.admin import NewTopic

from headrace.client import Connection, admin, producer

__all__ = ["PARTITIONS", "TOPICS", "fill_topics", "write_files"]

PARTITIONS = 4
START_MS = 1_767_225_600_000
RATE = 10_000  # rows of one topic in a second of event time
REGIONS = 50
_BLOCK = 100_000
_DAY_MS = 86_400_000

Row = tuple[int, int, bytes]  # what its partition is chosen by, its time, its JSON


def searches(rows: int) -> Iterator[Row]:
    for numbers, times, chance in _blocks(rows, 1):
        words = chance.integers(0, 10_000, len(numbers))
        for search, at, word in zip(numbers, times, words.tolist(), strict=True):
            yield search, at, b'{"search":%d,"at":%d,"words":"some words %d"}' % (search, at, word)
    for partition, end in _ends(rows):
        yield partition, end, b'{"search":-1,"at":%d,"words":""}' % end


def clicks(rows: int) -> Iterator[Row]:
    """Each on a search of about its time, at most ten seconds older; most within the five that count."""
    for numbers, times, chance in _blocks(rows, 2):
        back = chance.integers(0, 10 * RATE, len(numbers))
        for click, at, ago in zip(numbers, times, back.tolist(), strict=True):
            search = max(click - ago, 0)
            yield search, at, b'{"click":%d,"search_id":%d,"clicked_at":%d}' % (click, search, at)
    for partition, end in _ends(rows):
        yield partition, end, b'{"click":-1,"search_id":-2,"clicked_at":%d}' % end


def customers(rows: int) -> Iterator[Row]:
    """All customers once, a tenth as many as rows; then changes of their regions."""
    many = max(rows // 10, 1)
    for numbers, times, chance in _blocks(rows, 3, disorder_ms=1):
        drawn, regions = (chance.integers(0, most, len(numbers)).tolist() for most in (many, REGIONS))
        for number, at, other, region in zip(numbers, times, drawn, regions, strict=True):
            customer = number if number < many else other
            yield customer, at, _customer(customer, region, at, number)
    for partition, end in _ends(rows):
        yield partition, end, _customer(partition - PARTITIONS, 0, end, rows)


def orders(rows: int) -> Iterator[Row]:
    """By any customer; every order is changed once, a while after it was placed."""
    many = max(rows // 10, 1)
    for numbers, times, chance in _blocks(rows, 4):
        drawn, amounts = (chance.integers(0, most, len(numbers)).tolist() for most in (many, 1000))
        for number, at, customer, amount in zip(numbers, times, drawn, amounts, strict=True):
            order = number // 2 if number % 2 else number // 2 + 1
            yield order, at, _order(order, customer, amount, at, number)
    for partition, end in _ends(rows):
        yield partition, end, _order(partition - PARTITIONS, -9, 0, end, -1 - partition)


TOPICS: dict[str, Callable[[int], Iterator[Row]]] = {
    "searches": searches, "clicks": clicks, "customers": customers, "orders": orders
}  # fmt: skip
KEYS = {"customers": "customer", "orders": "order_id"}  # of those that are also read as tables


def write_files(folder: Path, rows: int) -> Path:
    """Each topic as JSON lines in the order of its partitions and offsets."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in TOPICS.items():
        with (folder / f"{name}.json").open("wb") as file:
            file.writelines(value + b"\n" for _, _, value in values(rows))
    return folder


def fill_topics(bootstrap: str, rows: int) -> None:
    """Rows of one key in one partition, each with its time as the record's and, in tables, its key."""
    connection = Connection(bootstrap_servers=bootstrap)
    client = admin(connection)  # must live until the answers are there
    made = [NewTopic(name, PARTITIONS, 1, config={"retention.ms": "-1"}) for name in TOPICS]
    for answer in client.create_topics(made).values():
        answer.result(30)
    sender = producer(connection, linger_ms=20, batch_size=1 << 20, queue_buffering_max_messages=1_000_000)
    for topic, values in TOPICS.items():
        column = KEYS.get(topic)
        for number, (by, at, value) in enumerate(values(rows)):
            key = b'{"%b":%d}' % (column.encode(), _id_in(value)) if column else None
            sender.produce(topic, value, key, partition=by % PARTITIONS, timestamp=at)
            if number % 10_000 == 0:
                sender.poll(0)
            while len(sender) > 500_000:
                sender.poll(0.05)
        if sender.flush(300):
            raise SystemExit(f"the broker at {bootstrap} did not take all records")


def _customer(customer: int, region: int, at: int, version: int) -> bytes:
    return b'{"customer":%d,"region":"region %d","changed_at":%d,"version":%d}' % (
        customer, region, at, version
    )  # fmt: skip


def _order(order: int, customer: int, amount: int, at: int, line: int) -> bytes:
    return b'{"order_id":%d,"customer_id":%d,"amount":%d,"placed_at":%d,"line":%d}' % (
        order, customer, amount, at, line
    )  # fmt: skip


def _id_in(value: bytes) -> int:
    """The first column's value."""
    return int(value[value.index(b":") + 1 : value.index(b",")])


def _blocks(
    rows: int, seed: int, disorder_ms: int = 2000
) -> Iterator[tuple[list[int], list[int], np.random.Generator]]:
    chance = np.random.default_rng(seed)
    for begin in range(0, rows, _BLOCK):
        numbers = np.arange(begin, min(begin + _BLOCK, rows))
        times = START_MS + numbers * 1000 // RATE - chance.integers(0, disorder_ms, len(numbers))
        yield numbers.tolist(), times.tolist(), chance


def _ends(rows: int) -> Iterator[tuple[int, int]]:
    end = START_MS + rows * 1000 // RATE + _DAY_MS
    return ((partition, end) for partition in range(PARTITIONS))
