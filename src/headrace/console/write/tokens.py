"""Tokens: what a write returned, so that a read can wait until a view reflects it. Pure.

A token says up to which offset each partition must be reflected. To clients it is
opaque; inside it is base64url of JSON, `{"orders": {"0": 42}}`, where 42 is the offset
after the last record written.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from headrace.console.problems import ProblemError

__all__ = ["WrittenOffsets", "decode_token", "encode_token", "merge_positions", "missing_positions"]

WrittenOffsets = Mapping[str, Mapping[int, int]]

_MOST_CHARACTERS = 64 * 1024
_MOST_OFFSET = (1 << 63) - 1
_MOST_PARTITION = (1 << 31) - 1


def encode_token(positions: WrittenOffsets) -> str:
    """The token of these positions; the same positions give the same token."""
    plain = {
        topic: {str(partition): offset for partition, offset in sorted(each.items())}
        for topic, each in sorted(positions.items())
    }
    return base64.urlsafe_b64encode(orjson.dumps(plain)).decode().rstrip("=")


def decode_token(text: str) -> dict[str, dict[int, int]]:
    """The positions of a token; raises ProblemError if it is none."""
    try:
        if len(text) > _MOST_CHARACTERS:
            raise ValueError("it is too long")
        found = orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
        return {_topic(topic): _partitions(each) for topic, each in found.items()}
    except (ValueError, AttributeError, TypeError, binascii.Error):
        raise ProblemError(
            400,
            "this is not a token that a write returned",
            "pass the token of a response unchanged",
            kind="bad-token",
        ) from None


def _topic(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise ValueError("a topic's name is text")
    return name


def _partitions(found: Any) -> dict[int, int]:
    return {
        _number(int(_digits(name)), _MOST_PARTITION): _number(at, _MOST_OFFSET) for name, at in found.items()
    }


def _digits(text: str) -> str:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise ValueError("a partition is a number")
    return text


def _number(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("a partition or an offset is a number")
    return value


def merge_positions(many: Iterable[WrittenOffsets]) -> dict[str, dict[int, int]]:
    """What reflects all of them: of each partition the furthest offset."""
    found: dict[str, dict[int, int]] = {}
    for positions in many:
        for topic, each in positions.items():
            known = found.setdefault(topic, {})
            for partition, offset in each.items():
                known[partition] = max(offset, known.get(partition, 0))
    return found


def missing_positions(wanted: WrittenOffsets, reflected: WrittenOffsets) -> dict[str, dict[int, int]]:
    """Of each partition that is not reflected as far as wanted, how many offsets are still to come."""
    found: dict[str, dict[int, int]] = {}
    for topic, each in wanted.items():
        known = reflected.get(topic, {})
        behind = {
            partition: offset - known.get(partition, 0)
            for partition, offset in each.items()
            if known.get(partition, 0) < offset
        }
        if behind:
            found[topic] = behind
    return found
