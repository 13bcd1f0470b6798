"""What committed readers find on a topic once its transactions have ended."""

import time

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace.client import EARLIEST, LATEST, Connection, RawFetcher, admin
from headrace.records import decode_columns


def read(log: Connection, topic: str) -> list[dict]:
    """Every committed record with its partition, in order; waits until no transaction is open."""
    with RawFetcher(log) as fetcher:
        starts, ends = fetcher.offsets(topic, EARLIEST), _settled(log, fetcher, topic)
        return [
            {"partition": partition, **each}
            for partition in starts
            for run in fetcher.fetch(topic, partition, starts[partition], ends[partition])
            for each in decode_columns(run, start_offset=starts[partition]).to_pylist()
        ]


def _settled(log: Connection, fetcher: RawFetcher, topic: str) -> dict[int, int]:
    """The ends, as soon as committed readers may read up to them.

    A commit is decided before its markers are on every partition.
    """
    client, deadline = admin(log), time.monotonic() + 60
    while True:
        ends = fetcher.offsets(topic, LATEST)
        asked = {TopicPartition(topic, each): OffsetSpec.latest() for each in ends}
        told = client.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        if ends == {each.partition: done.result(20).offset for each, done in told.items()}:
            return ends
        assert time.monotonic() < deadline, f"a transaction on {topic} is open after 60 s"


def committed(log: Connection, group: str, topic: str, partition: int = 0) -> int:
    member = Consumer({"bootstrap.servers": log.bootstrap_servers, "group.id": group})
    try:
        return member.committed([TopicPartition(topic, partition)], 20)[0].offset
    finally:
        member.close()
