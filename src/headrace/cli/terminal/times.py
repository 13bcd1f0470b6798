"""Times as people type them, and as they are shown.

A time is ISO 8601 (`2026-11-15`, `2026-11-15T21:30:00+01:00`; without a zone it
is UTC), a span before now (`-2h`, `-1d12h`, `-90s`, `-250ms`), `now`, or `@` and
milliseconds since the epoch. Everything is shown in UTC. Pure: now is an argument.
"""

import re
from datetime import UTC, datetime

from headrace.errors import RequestError

__all__ = ["format_span", "format_time", "parse_time"]

UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
SPAN = re.compile(r"-((?:\d+(?:ms|s|m|h|d|w))+)", re.ASCII)
PIECE = re.compile(r"(\d+)(ms|s|m|h|d|w)", re.ASCII)
FORMS = "use ISO 8601 (2026-11-15T21:30:00Z), a duration before now (-2h, -1d12h), now, or @MILLISECONDS"


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since the epoch; raises RequestError naming the accepted forms."""
    text = text.strip()
    if text == "now":
        return now_ms
    if span := SPAN.fullmatch(text):
        return now_ms - sum(int(count) * UNIT_MS[unit] for count, unit in PIECE.findall(span[1]))
    if text.startswith("@") and text[1:].isascii() and text[1:].isdigit():
        return int(text[1:])
    return _parse_iso(text)


def _parse_iso(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(f"{text!r} is not a time: {FORMS}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Not timestamp() * 1000: a float of that size may round to the neighbouring millisecond.
    span = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return span.days * UNIT_MS["d"] + span.seconds * 1000 + span.microseconds // 1000


def format_time(time_ms: int | None) -> str | None:
    """ISO 8601 in UTC with milliseconds; a time outside the calendar as `@MILLISECONDS`."""
    if time_ms is None:
        return None
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"@{time_ms}"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}Z".rjust(24, "0")


def format_span(seconds: float) -> str:
    """A span in its two largest units: `2h 3m`, `41s`, `0.25s`; precise enough for a lag."""
    if seconds < 10:
        return f"{seconds:.3g}s"
    rest = round(seconds)
    pieces: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or pieces:
            pieces.append(f"{count}{unit}")
        if len(pieces) == 2:
            break
    return " ".join(pieces)
