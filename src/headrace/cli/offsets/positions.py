"""Places in a log as people type them: positions, and `topic[:partition]`. Pure."""

from headrace.cli.terminal import parse_time
from headrace.client.topics import Position, PositionKind
from headrace.errors import RequestError

__all__ = ["parse_position", "parse_selector"]


def parse_position(text: str, now_ms: int) -> Position:
    """`earliest`, `latest`, an offset, or a time as `parse_time` takes it."""
    if text in (PositionKind.EARLIEST.value, PositionKind.LATEST.value):
        return Position(PositionKind(text))
    if text.isascii() and text.isdigit():
        return Position(PositionKind.OFFSET, int(text))
    try:
        return Position(PositionKind.TIME, parse_time(text, now_ms))
    except RequestError as error:
        raise RequestError(f"{text!r} is not earliest, latest, an offset or a time: {error}") from None


def parse_selector(text: str) -> tuple[str, int | None]:
    """`orders` as (orders, None) for every partition, `orders:3` as (orders, 3)."""
    topic, colon, partition = text.partition(":")
    if not colon and topic:
        return topic, None
    if not topic or not (partition.isascii() and partition.isdigit()):
        raise RequestError(f"{text!r} is not TOPIC or TOPIC:PARTITION, such as orders:3")
    return topic, int(partition)
