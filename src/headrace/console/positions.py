"""Positions in a topic as subscribers carry them: `0:41,1:17`, the next offset of each partition. Pure."""

from collections.abc import Mapping

from headrace.console.problems import ProblemError

__all__ = ["format_positions", "parse_positions"]

_MOST_CHARACTERS = 256 * 1024


def format_positions(positions: Mapping[int, int]) -> str:
    """In order of partitions; `parse_positions` reads it."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def parse_positions(text: str) -> dict[int, int]:
    """The positions; raises ProblemError if the text is none."""
    try:
        if len(text) > _MOST_CHARACTERS:
            raise ValueError
        pairs = [each.partition(":") for each in text.split(",")] if text else []
        return {_number(partition, 31): _number(offset, 63) for partition, _, offset in pairs}
    except ValueError:
        raise ProblemError(
            400,
            f"{text[:80]!r} is no position in a topic",
            "give the id of an event as it came, such as 0:41,1:17",
            kind="bad-position",
        ) from None


def _number(text: str, bits: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19) or int(text) >= 1 << bits:
        raise ValueError(text)
    return int(text)
