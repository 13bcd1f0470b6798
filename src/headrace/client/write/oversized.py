"""Rows that are larger than their topic takes. Pure.

Such a row becomes a dead letter, and those after it are written as usual. In a changelog the
row is retracted: readers then have no row of that key, rather than an outdated one.
"""

from collections.abc import Iterable, Iterator

import orjson

from headrace.client.deadletters import shortened
from headrace.client.record_sizes import wire_bytes
from headrace.client.write.transactions import OutputRecord
from headrace.records import STREAM_PREFIX

__all__ = ["fits", "fitting_changes", "row_letter"]


def fits(record: OutputRecord, most_bytes: int) -> bool:
    """Whether a topic with this limit takes the record."""
    return wire_bytes(record.key, record.value, record.headers) <= most_bytes


def row_letter(dead_letters: str, record: OutputRecord, *, most_bytes: int) -> OutputRecord:
    """A row that its topic does not take, as a dead letter in the topic `dead_letters`.

    It keeps its headers, which may name the record it was made from, but cannot be redriven: that
    record was read, and is counted.
    """
    size = wire_bytes(record.key, record.value, record.headers)
    added = (
        (
            f"{STREAM_PREFIX}reason",
            f"row too large for its topic: {record.topic} does not take {size} bytes".encode(),
        ),
        (f"{STREAM_PREFIX}row_for", record.topic.encode()),
    )
    about = (*record.headers, *added)
    parts = shortened(record.key, record.value, (), about, prefix=STREAM_PREFIX, most_bytes=most_bytes)
    return OutputRecord(dead_letters, *parts)


def fitting_changes(
    records: Iterable[OutputRecord], dead_letters: str, *, takes: int, letters_take: int, compacted: bool
) -> Iterator[OutputRecord]:
    """The records of a changelog whose topic `takes` so many bytes, each as it is or replaced.

    A change that is too large is written without the row that it replaces; if the new row alone is
    too large, it becomes a dead letter, and the row of that key is retracted.
    """
    for record in records:
        if fits(record, takes):
            yield record
            continue
        change = orjson.loads(record.value or b"null")
        alone = record._replace(value=None if change is None else orjson.dumps(change | {"before": None}))
        if fits(alone, takes):
            yield alone
            continue
        yield row_letter(dead_letters, record, most_bytes=letters_take)
        gone = alone._replace(
            value=None
            if compacted or change is None
            else orjson.dumps(change | {"kind": "retract", "before": None, "after": None})
        )
        if fits(gone, takes):
            yield gone
