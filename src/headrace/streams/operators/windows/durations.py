"""Durations as people write them: "90 seconds", "1 hour", a timedelta; microseconds inside."""

import re
from datetime import timedelta

from headrace.errors import RequestError

__all__ = ["Duration", "microseconds"]

Duration = str | timedelta

_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_SHORT = {"us": "microsecond", "ms": "millisecond", "s": "second", "min": "minute", "h": "hour", "d": "day"}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*(?:,|and\b)?", re.ASCII)


def microseconds(duration: Duration) -> int:
    """The duration in whole microseconds.

    Text is one or more of a number and a unit ("1 hour 30 minutes", "0.5 seconds",
    "250 ms"); months and years are refused, since their length varies.
    """
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    if not isinstance(duration, str):
        raise _refusal(duration)
    text, position, total_us = duration.strip().lower(), 0, 0.0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None:
            raise _refusal(duration)
        total_us += float(part[1]) * _unit_us(part[2], duration)
        position = part.end()
    if not text or total_us != int(total_us):
        raise _refusal(duration)
    return int(total_us)


def _unit_us(word: str, duration: str) -> int:
    name = _SHORT.get(word, word.removesuffix("s"))
    if name not in _UNITS_US:
        raise _refusal(duration)
    return _UNITS_US[name]


def _refusal(duration: object) -> RequestError:
    return RequestError(
        f"{duration!r} is not a duration: give a number and a unit of {', '.join(_UNITS_US)} "
        "(for example '90 seconds' or '1 hour 30 minutes'), or a timedelta"
    )
