"""How often, and for how long, a query with silent input must look at the clock. Pure."""

from collections.abc import Iterator

from headrace.streams.engine.plan import StreamPlan
from headrace.streams.feed.positions import Heartbeat
from headrace.streams.operators import Session, Sliding, Window

__all__ = ["heartbeat_of"]

_SECOND_US = 1_000_000


def heartbeat_of(plan: StreamPlan) -> Heartbeat | None:
    """Often enough for the smallest window, until the largest must have closed.

    Those of the queries that this one tells its time count as its own; these have no heart of
    their own.
    """
    waits = [] if plan.spec.follows_maker else list(_waits(plan))
    if not waits:
        return None
    smallest = min(_step_us(window) for window, _ in waits)
    longest = max(_size_us(window) + lateness_us for window, lateness_us in waits)
    return Heartbeat(
        interval_us=min(max(smallest // 4, _SECOND_US), 60 * _SECOND_US),
        until_us=longest + plan.spec.idle_after_us + _SECOND_US,
    )


def _waits(plan: StreamPlan) -> Iterator[tuple[Window, int]]:
    """The windows of a query and of those it tells its time, each with the lateness it waits for."""
    for operator in plan.operators:
        yield operator.window, plan.spec.lateness_us
    for each in plan.followers:
        yield from _waits(each)


def _step_us(window: Window) -> int:
    if isinstance(window, Session):
        return window.gap_us
    return window.size_us if isinstance(window, Sliding) else window.step_us


def _size_us(window: Window) -> int:
    return window.gap_us if isinstance(window, Session) else window.size_us
