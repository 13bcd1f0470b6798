"""Topics of tens of millions of JSON rows, written in about a microsecond a row.

A template makes the rows: text with fields such as `%010d`, one for each column of numbers, each
of a fixed width, so that a block of rows is one array of bytes. The batches are those of
Headrace's own producer (`BatchProducer`), which takes rows where they are.
"""

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from confluent_kafka.admin import NewTopic

from headrace.client import Connection, admin
from headrace.client.write import BatchProducer, OutputRecord, RecordBlock
from headrace.records import Codec

__all__ = ["Rows", "Template", "append", "blocks_of", "make_topics"]

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_FIELD = re.compile(r"%0(\d+)d")
_BLOCK = 50_000


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one topic: a column of numbers for each field of its templates, and their times.

    Without keys, each block goes to a partition of its own. Rows that are `gone` are tombstones.
    """

    columns: Sequence[Ints]
    times_ms: Ints
    key: Ints | None = None
    gone: npt.NDArray[np.bool_] | None = None


class Template:
    """Rows of equal width: `text` with a field for each column."""

    def __init__(self, text: str) -> None:
        self._parts = _FIELD.split(text)

    def rows(self, columns: Sequence[Ints]) -> Bytes:
        count = len(columns[0])
        parts = []
        for number, part in enumerate(self._parts):
            if number % 2:
                parts.append(_digits(columns[number // 2], int(part)))
            else:
                parts.append(np.broadcast_to(np.frombuffer(part.encode(), np.uint8), (count, len(part))))
        return np.hstack(parts)


def _digits(column: Ints, width: int) -> Bytes:
    if len(column) and int(column.max()) >= 10**width:
        raise ValueError(f"{int(column.max())} has more than {width} digits")
    places = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    return (column[:, None] // places % 10 + ord("0")).astype(np.uint8)


def make_topics(bootstrap: str, topics: Mapping[str, int]) -> None:
    """Topics that keep everything, each with so many partitions."""
    client = admin(Connection(bootstrap_servers=bootstrap))  # must live until the answers are there
    made = [
        NewTopic(name, partitions, 1, config={"retention.ms": "-1"}) for name, partitions in topics.items()
    ]
    for answer in client.create_topics(made).values():
        answer.result(60)


def append(
    bootstrap: str,
    topic: str,
    value: str,
    rows: Iterator[Rows],
    *,
    key: str = "",
    ends: Mapping[int, tuple[int, bytes]],
) -> int:
    """Appends the rows, and a last one, with its time, to each partition in `ends`; how many rows it were."""
    values, keys = Template(value), Template(key) if key else None
    writer = BatchProducer(
        Connection(bootstrap_servers=bootstrap), f"bulk-{topic}", timeouts_ms=(600_000,), codec=Codec.NONE
    )
    writer.take_over()
    total = 0
    for block in rows:
        writer.transact([_block(topic, values, keys, block)], lambda _: ())
        total += len(block.times_ms)
    for partition, (end_ms, last) in ends.items():
        record = OutputRecord(topic, None, last, partition=partition, timestamp_ms=end_ms)
        writer.transact([record], lambda _: ())
    writer.close()
    return total


def blocks_of(rows: int, size: int = _BLOCK) -> Iterator[Ints]:
    """The numbers of so many rows, in blocks."""
    return (np.arange(begin, min(begin + size, rows)) for begin in range(0, rows, size))


def _block(topic: str, values: Template, keys: Template | None, rows: Rows) -> RecordBlock:
    octets = values.rows(rows.columns)
    count, width = octets.shape
    begin = int(rows.times_ms.min())
    numbers = np.zeros((count, 7), np.int64)
    numbers[:, 1] = ord("c")
    numbers[:, 2], numbers[:, 3] = 0, -1
    numbers[:, 4], numbers[:, 5] = np.arange(count) * width, width
    numbers[:, 6] = rows.times_ms - begin
    data = bytearray(octets.tobytes())
    if keys is not None and rows.key is not None:
        own = keys.rows([rows.key])
        numbers[:, 2], numbers[:, 3] = len(data) + np.arange(count) * own.shape[1], own.shape[1]
        data += own.tobytes()
    if rows.gone is not None:
        numbers[rows.gone, 5] = -1
    flat = array("q")
    flat.frombytes(numbers.tobytes())
    return RecordBlock(data, flat, count, {0: topic}, begin)
