"""Where a query without checkpoint begins, as a user writes it; no I/O."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from headrace.client import EARLIEST, LATEST
from headrace.errors import ConfigError

__all__ = ["Start", "parse_start"]


@dataclass(frozen=True, slots=True)
class Start:
    """A moment for all partitions (EARLIEST, LATEST or milliseconds), and offsets for some of them."""

    when: int
    offsets: Mapping[int, int] = field(default_factory=dict)


def parse_start(text: str) -> Start:
    """A Start from "earliest", "latest", a time, or offsets; raises ConfigError on anything else.

    Offsets are written "0:1200,1:1187" or as JSON {"0": 1200, "1": 1187}; partitions
    that are not named start at the earliest.
    """
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Start(EARLIEST if word == "earliest" else LATEST)
    offsets = _offsets(word)
    if offsets is not None:
        return Start(EARLIEST, offsets)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConfigError(
            f"start={text!r} is neither earliest, latest, a time such as 2026-01-31T12:00:00Z "
            'nor offsets such as 0:1200,1:1187 or {"0": 1200, "1": 1187}'
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Start(round(moment.timestamp() * 1000))


def _offsets(text: str) -> dict[int, int] | None:
    try:
        if text.startswith("{"):
            pairs = [(str(partition), str(offset)) for partition, offset in json.loads(text).items()]
        else:
            pairs = [_pair(each) for each in text.split(",")]
        found = {int(partition): int(offset) for partition, offset in pairs}
    except (ValueError, TypeError):
        return None
    legal = all(partition >= 0 and offset >= 0 for partition, offset in found.items())
    return found if legal and len(found) == len(pairs) else None


def _pair(text: str) -> tuple[str, str]:
    partition, _, offset = text.partition(":")
    return partition, offset
