"""Watermarks that producers send: a record with a header that says how far event time has come.

Who writes a stream often knows best when nothing older will follow: the end of a file,
of a day, of a table's snapshot. Such a record is no row of the stream; it raises the
event-time watermark of its own partition from its place in the log on.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from confluent_kafka import Producer

from headrace.errors import RequestError

__all__ = ["WATERMARK_HEADER", "declare_watermark", "parse_watermark"]

WATERMARK_HEADER: Final = "headrace.watermark"
_LAST_MS = 253_402_300_799_999  # the end of the year 9999


def declare_watermark(
    producer: Producer,
    topic: str,
    moment: datetime | int,
    *,
    partitions: Iterable[int],
    key: bytes | None = None,
) -> None:
    """Promises that no event before `moment` follows in these partitions.

    `moment` is a datetime with a zone, or milliseconds since the epoch. The record goes
    the way of all records of this producer: behind those sent before, and not
    acknowledged until the producer is flushed. A compacted topic wants a `key`.
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise RequestError(f"the watermark {moment} has no time zone; use datetime(…, tzinfo=UTC)")
        moment = int(moment.timestamp() * 1000 // 1)
    for partition in partitions:
        producer.produce(
            topic, None, key, partition=partition, headers=[(WATERMARK_HEADER, str(moment).encode("ascii"))]
        )


def parse_watermark(value: bytes | None) -> int | None:
    """The microseconds a header stands for; None if it is not a whole number of milliseconds in range."""
    text = (value or b"").removeprefix(b"-")
    if not text.isdigit() or len(text) > len(str(_LAST_MS)):
        return None
    milliseconds = int(value or b"")
    return milliseconds * 1000 if abs(milliseconds) <= _LAST_MS else None
