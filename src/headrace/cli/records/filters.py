"""Which records a tail shows. Pure."""

import re
from dataclasses import dataclass

from headrace.errors import RequestError

__all__ = ["Filter", "compile_pattern"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A record passes when it meets every condition that is set.

    Text conditions look at the value as UTF-8, undecodable bytes replaced; a
    record without key or value meets no condition on it.
    """

    key: bytes | None = None
    key_prefix: bytes | None = None
    contains: str | None = None
    pattern: re.Pattern[str] | None = None
    since_ms: int | None = None
    before_ms: int | None = None

    def passes(self, *, key: bytes | None, value: bytes | None, timestamp_ms: int) -> bool:
        return self._key_passes(key) and self._time_passes(timestamp_ms) and self._value_passes(value)

    def _key_passes(self, key: bytes | None) -> bool:
        if self.key is not None and key != self.key:
            return False
        return self.key_prefix is None or (key is not None and key.startswith(self.key_prefix))

    def _time_passes(self, timestamp_ms: int) -> bool:
        if self.since_ms is not None and timestamp_ms < self.since_ms:
            return False
        return self.before_ms is None or timestamp_ms < self.before_ms

    def _value_passes(self, value: bytes | None) -> bool:
        if self.contains is None and self.pattern is None:
            return True
        if value is None:
            return False
        text = value.decode(errors="replace")
        if self.contains is not None and self.contains not in text:
            return False
        return self.pattern is None or self.pattern.search(text) is not None


def compile_pattern(text: str) -> re.Pattern[str]:
    """The regular expression, or RequestError saying where it is wrong."""
    try:
        return re.compile(text)
    except re.error as error:
        raise RequestError(f"--match {text!r} is not a regular expression: {error}") from None
