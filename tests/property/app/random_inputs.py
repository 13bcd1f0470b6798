"""Records of two tables and two streams by chance, and the same as SQL has them.

Every topic has two partitions. Rows of tables and streams come late now and then, rows are deleted, and a
few records cannot be read.
"""

import json
from dataclasses import dataclass

import pyarrow as pa

SECOND = 1_000  # times are in milliseconds
LATENESS = {"t": 0, "s": 2 * SECOND}
TABLES, STREAMS = ("t0", "t1"), ("s0", "s1")
TABLE = {name: pa.int64() for name in ("id", "g", "v")}
STREAM = {name: pa.int64() for name in ("g", "v")}
STAMPS = {name: pa.int64() for name in ("_t", "_w", "_p", "_o")}
ARRAY = pa.list_(pa.int64())


@dataclass(frozen=True)
class Sent:
    """A record; `row` is None where it deletes its key, and `is_dead` says that nobody can read it."""

    topic: str
    partition: int
    time: int
    key: str | None
    row: dict | None
    is_dead: bool = False


def inputs(chance, base):
    """The records of every partition, in their order."""
    found = {}
    for topic in (*TABLES, *STREAMS):
        for partition in (0, 1):
            records, time = found.setdefault((topic, partition), []), base
            for _ in range(chance.randrange(0, 9)):
                time += chance.choice((0, 1, 3, 7)) * SECOND
                records.append(_record(chance, topic, partition, time, base))
    return found


def _record(chance, topic, partition, time, base):
    values = {f"{topic}_{name}": chance.choice((None, 0, 1, 2, 3)) for name in ("g", "v")}
    values["xs"] = chance.choice((None, [], [1], [2, None], [3, 3]))
    if chance.random() < 0.04:
        return Sent(topic, partition, time, None, None, is_dead=True)
    if topic in STREAMS:
        at = max(time - chance.choice((0, 0, 0, 1, 4, 9, 15)) * SECOND, base)
        return Sent(topic, partition, time, None, {**values, "at": at})
    key = {f"{topic}_id": 2 * chance.randrange(0, 3) + partition}
    since = max(time - chance.choice((0, 0, 0, 0, 2, 8)) * SECOND, base)
    return Sent(
        topic, partition, since, json.dumps(key), {**key, **values} if chance.random() < 0.75 else None
    )


def interleaved(chance, partitions):
    """All records, those of each partition in their order, and how many of them the first batch has.

    A partition that has had no row holds nothing up, so a batch without one of each would depend on the
    clock.
    """
    left = {place: list(records) for place, records in partitions.items() if records}
    found = []
    for records in left.values():
        found.append(records.pop(0))
        while found[-1].is_dead and records:
            found.append(records.pop(0))
    first = len(found)
    left = {place: records for place, records in left.items() if records}
    while left:
        place = chance.choice(list(left))
        found.append(left[place].pop(0))
        if not left[place]:
            del left[place]
    return found, first


class Topics:
    """What SQL has of the records so far: of a table its rows and its log, of a stream its rows."""

    def __init__(self):
        self.rows = {topic: [] for topic in (*TABLES, *STREAMS)}
        self.counts = dict.fromkeys(self.rows, 0)
        self._latest, self._offsets = {}, {}

    def add(self, sent):
        place = (sent.topic, sent.partition)
        offset = self._offsets.get(place, 0)
        self._offsets[place] = offset + 1
        self.counts[sent.topic] += 1
        if sent.is_dead:
            return
        is_stream = sent.topic in STREAMS
        time = sent.row["at"] if is_stream else sent.time
        before = self._latest.get(place)
        self._latest[place] = max(time, before if before is not None else time)
        watermark = None if before is None else before - LATENESS[sent.topic[0]]
        stamps = {"_t": time, "_w": watermark, "_p": sent.partition, "_o": offset}
        key = {} if is_stream else json.loads(sent.key)
        row = {**key, **(sent.row or {}), **stamps, "_deleted": sent.row is None}
        self.rows[sent.topic].append(row)

    def register(self, database):
        for topic, rows in self.rows.items():
            own = TABLE if topic in TABLES else STREAM
            columns = {f"{topic}_{name}": kind for name, kind in own.items()} | {"xs": ARRAY}
            if topic in TABLES:
                newest = {row[f"{topic}_id"]: row for row in rows}
                current = [row for row in newest.values() if not row["_deleted"]]
                database.register(topic, pa.Table.from_pylist(current, pa.schema(columns)))
            schema = pa.schema({**columns, **STAMPS, "_deleted": pa.bool_()})
            database.register(f"{topic}_log", pa.Table.from_pylist(rows, schema))
