"""A running count on stderr for a person who waits; silent when nobody watches."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.clock import SystemClock

__all__ = ["progress"]

FIRST_AFTER_MS = 1000
EVERY_MS = 250


@contextmanager
def progress(what: str, count: Callable[[], int]) -> Iterator[Callable[[], None]]:
    """Yields a function to call often; it redraws the count now and then, and the end erases it."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    clock = SystemClock()
    began_ms = clock.monotonic_ms()
    due_ms = began_ms + FIRST_AFTER_MS

    def advance() -> None:
        nonlocal due_ms
        now_ms = clock.monotonic_ms()
        if now_ms >= due_ms:
            due_ms = now_ms + EVERY_MS
            rate = count() * 1000 // (now_ms - began_ms)
            sys.stderr.write(f"\r\x1b[K{count():,} {what}, {rate:,} a second")
            sys.stderr.flush()

    try:
        yield advance
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
