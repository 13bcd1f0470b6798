"""What the topics of a capture hold, read as any consumer would."""

from collections import defaultdict
from typing import Any, NamedTuple

import orjson

from headrace.client import EARLIEST, LATEST, Connection, RawFetcher
from headrace.records import decode_columns


class Read(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: Any


def read_topic(bootstrap: str, topic: str) -> list[Read]:
    """Every record of a transaction that was committed, partition by partition; waits for its markers."""
    found = []
    with RawFetcher(Connection(bootstrap_servers=bootstrap)) as fetcher:
        starts, ends = fetcher.offsets(topic, EARLIEST), fetcher.offsets(topic, LATEST, committed=False)
        for partition, start in starts.items():
            for run in fetcher.fetch(topic, partition, start, ends[partition]):
                columns = decode_columns(run, columns=("offset", "key", "value"))
                names = (columns[each].to_pylist() for each in ("offset", "key", "value"))
                for offset, key, value in zip(*names, strict=True):
                    read = None if value is None else orjson.loads(value)
                    found.append(Read(partition, offset, key, read))
    return found


def folded(records: list[Read]) -> dict[bytes, Any]:
    """The table that the records make: the newest row of each key."""
    rows: dict[bytes, Any] = {}
    for record in records:
        assert record.key is not None
        if record.value is None or record.value["op"] == "d":
            rows.pop(record.key, None)
        else:
            rows[record.key] = record.value["after"]
    return rows


def by_key(records: list[Read]) -> dict[bytes | None, list[Any]]:
    """The values of each key, in order."""
    found = defaultdict(list)
    for record in records:
        found[record.key].append(record.value)
    return dict(found)
