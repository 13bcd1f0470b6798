"""Awaiting a condition instead of sleeping and hoping."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    ask: Callable[[], T], *, timeout_s: float = 120, about: Callable[[], object] = lambda: ""
) -> T:
    """Ask until the answer is true and return it; fails with what `about` says after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come true within {timeout_s} s: {about()}")
        time.sleep(0.05)
    return answer
