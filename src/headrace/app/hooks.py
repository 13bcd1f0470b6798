"""How an application declares that somebody is told: arguments in, hooks out; no I/O."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from headrace.hooks import Backoff, Email, Hook, Webhook
from headrace.streams.operators import microseconds as duration_us

__all__ = ["HookStart", "make_backoff", "make_hook", "seconds", "several"]

Duration = str | timedelta
HookStart = Literal["now", "earliest"]


def make_hook(
    topic: str, target: Webhook | Email, *, name: str | None, start: HookStart, backoff: Backoff
) -> Hook:
    """A hook; without a name it is called after its topic and kind."""
    kind = "webhook" if isinstance(target, Webhook) else "email"
    return Hook(name=name or f"{topic}.{kind}", topic=topic, target=target, start=start, backoff=backoff)


def make_backoff(tries: int, first_wait: Duration, longest_wait: Duration) -> Backoff:
    """How patient to be; raises ConfigError if that makes no sense."""
    return Backoff(first_s=seconds(first_wait), longest_s=seconds(longest_wait), tries=tries)


def several(given: str | Sequence[str]) -> tuple[str, ...]:
    """One text, or more of them."""
    return (given,) if isinstance(given, str) else tuple(given)


def seconds(duration: Duration) -> float:
    """A duration as people write it."""
    return duration_us(duration) / 1_000_000
