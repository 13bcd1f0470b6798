"""Keeps a cache by following the changes of a database: it has what the database has, in its order."""

import argparse
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing

from confluent_kafka import Consumer, TopicPartition

TOPIC = "shop.main.prices"


def follow(
    cache: str, bootstrap: str, *, topic: str = TOPIC, is_enough: Callable[[], bool] = lambda: False
) -> None:
    """Applies each change once: the offset is kept in the cache, in the same transaction as the prices."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "cache", "isolation.level": "read_committed"}
    )
    with closing(sqlite3.connect(cache, isolation_level=None, timeout=60)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS prices (item INTEGER PRIMARY KEY, price REAL NOT NULL)")
        database.execute("CREATE TABLE IF NOT EXISTS offsets (part INTEGER PRIMARY KEY, next INTEGER)")
        reached = dict(database.execute("SELECT part, next FROM offsets"))
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, each, reached.get(each, 0)) for each in partitions])
        try:
            while not is_enough():
                records = [each for each in consumer.consume(500, 0.2) if each.error() is None]
                database.execute("BEGIN")
                for record in records:
                    apply(database, record.key(), record.value())
                    offset = (record.partition(), record.offset() + 1)
                    database.execute("REPLACE INTO offsets VALUES (?, ?)", offset)
                database.execute("COMMIT")
        finally:
            consumer.close()


def apply(database: sqlite3.Connection, key: bytes, value: bytes | None) -> None:
    """One change: the row as it is now, or none."""
    change = None if value is None else json.loads(value)
    if change is None or change["op"] == "d":
        database.execute("DELETE FROM prices WHERE item = ?", (json.loads(key)["item"],))
    else:
        row = change["after"]
        database.execute("REPLACE INTO prices VALUES (?, ?)", (row["item"], row["price"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cache")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    chosen = parser.parse_args()
    follow(chosen.cache, chosen.bootstrap)


if __name__ == "__main__":
    main()
