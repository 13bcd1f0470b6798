"""Refused changes, of which only so many get an audit record of their own. Pure.

A user who may not change something can try any number of times. So each user, at each
address, has `most` records of refusals in a span of time; the others are counted, and
when the span is over one record sums them up. Addresses are easily made up: beyond
`most_callers` they share one count.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["SPAN_MS", "Caller", "Refusals", "UnrecordedRefusals"]

SPAN_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asked, and from where; without address: from several."""

    name: str
    role: str
    address: str | None


@dataclass(slots=True, kw_only=True)
class UnrecordedRefusals:
    """Refusals of one caller without records of their own, by what was asked for; `status` is of the last."""

    since_ms: int
    until_ms: int
    status: int
    actions: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Span:
    began_ms: int
    recorded: int = 0
    more: UnrecordedRefusals | None = None


@dataclass(slots=True)
class Refusals:
    """Counts refusals by caller; one thread."""

    most: int
    most_callers: int = 256
    _spans: dict[Caller, _Span] = field(default_factory=dict)

    def is_recorded(self, caller: Caller, action: str, status: int, now_ms: int) -> bool:
        """Whether this refusal gets a record of its own; if not, it is counted for `pop_ended`."""
        span = self._spans.get(caller)
        if span is None and len(self._spans) >= self.most_callers:
            caller = Caller(name=caller.name, role=caller.role, address=None)
            span = self._spans.get(caller)
        if span is None:
            span = self._spans[caller] = _Span(now_ms)
        if span.recorded < self.most:
            span.recorded += 1
            return True
        if span.more is None:
            span.more = UnrecordedRefusals(since_ms=now_ms, until_ms=now_ms, status=status)
        span.more.until_ms, span.more.status = now_ms, status
        span.more.actions[action] += 1
        return False

    def pop_ended(self, now_ms: int | None = None) -> Iterator[tuple[Caller, UnrecordedRefusals]]:
        """Takes the spans that are over, all of them without a time; gives those with something to sum up."""
        for caller, span in list(self._spans.items()):
            if now_ms is None or now_ms - span.began_ms >= SPAN_MS:
                del self._spans[caller]
                if span.more is not None:
                    yield caller, span.more
