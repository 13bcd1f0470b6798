"""Places in a log as people type them: positions, and `topic[:partition]`. Pure."""

from headrace.cli.times import parse_time
from headrace.client.places import Kind, Position
from headrace.errors import RequestError

__all__ = ["parse_position", "parse_selector"]


def parse_position(text: str, now_ms: int) -> Position:
    """`earliest`, `latest`, an offset, or a time as `parse_time` takes it."""
    if text in (Kind.EARLIEST.value, Kind.LATEST.value):
        return Position(Kind(text))
    if text.isascii() and text.isdigit():
        return Position(Kind.OFFSET, int(text))
    try:
        return Position(Kind.TIME, parse_time(text, now_ms))
    except RequestError as error:
        raise RequestError(f"{text!r} is neither earliest, latest, an offset nor a time: {error}") from None


def parse_selector(text: str) -> tuple[str, int | None]:
    """`orders` as (orders, None) for every partition, `orders:3` as (orders, 3)."""
    topic, colon, partition = text.partition(":")
    if not colon and topic:
        return topic, None
    if not topic or not (partition.isascii() and partition.isdigit()):
        raise RequestError(f"{text!r} names no partition: write TOPIC or TOPIC:PARTITION, such as orders:3")
    return topic, int(partition)
