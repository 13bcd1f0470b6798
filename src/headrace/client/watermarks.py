"""Watermarks declared by producers: records with a header that says how far event time has come.

Producers often know best when nothing older will follow: the end of a file, of a day, of a
table's snapshot. Such a record is not a row of the stream; it raises the event-time watermark
of its own partition from its offset on.
"""

from collections.abc import Iterable
from datetime import datetime

from confluent_kafka import Producer

from headrace.errors import RequestError
from headrace.records import WATERMARK_HEADER

__all__ = ["declare_watermark"]


def declare_watermark(
    producer: Producer,
    topic: str,
    moment: datetime | int,
    *,
    partitions: Iterable[int],
    key: bytes | None = None,
) -> None:
    """Promises that no event before `moment` follows in these partitions.

    `moment` is a datetime with a time zone, or milliseconds since the epoch. The record is
    sent like any other of this producer: after those sent before, and not acknowledged
    until the producer is flushed. A compacted topic needs a `key`.
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise RequestError(f"the watermark {moment} has no time zone; use datetime(…, tzinfo=UTC)")
        moment = int(moment.timestamp() * 1000 // 1)
    for partition in partitions:
        producer.produce(
            topic, None, key, partition=partition, headers=[(WATERMARK_HEADER, str(moment).encode("ascii"))]
        )
