"""How often, and for how long, a query with silent input must look at the clock. Pure."""

from headrace.streams.engine.plan import StreamPlan
from headrace.streams.feed_positions import Heartbeat
from headrace.streams.operators import Session, Sliding, Window

__all__ = ["heartbeat_of"]

_SECOND_US = 1_000_000


def heartbeat_of(plan: StreamPlan) -> Heartbeat | None:
    """Often enough for the smallest window, until the largest must have closed."""
    operators = plan.operators
    if not operators:
        return None
    smallest = min(_step_us(operator.window) for operator in operators)
    longest = max(_size_us(operator.window) for operator in operators)
    return Heartbeat(
        interval_us=min(max(smallest // 4, _SECOND_US), 60 * _SECOND_US),
        until_us=longest + plan.spec.lateness_us + plan.spec.idle_after_us + _SECOND_US,
    )


def _step_us(window: Window) -> int:
    if isinstance(window, Session):
        return window.gap_us
    return window.size_us if isinstance(window, Sliding) else window.step_us


def _size_us(window: Window) -> int:
    return window.gap_us if isinstance(window, Session) else window.size_us
