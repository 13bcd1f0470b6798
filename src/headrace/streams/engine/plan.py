"""What one query computes: a stream, and the views that follow it."""

from dataclasses import dataclass

from headrace.streams.operators import WindowOperator
from headrace.streams.spec import StreamSpec

__all__ = ["RESERVED", "StreamPlan", "ViewPlan"]

RESERVED = ("_partition", "_offset", "_event_time", "_watermark")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPlan:
    """One view: the columns it needs, and the windows they go through; without, rows as they are."""

    name: str
    columns: tuple[str, ...]
    operator: WindowOperator | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """All views of one stream, and the number of buckets that their keys are spread over.

    The number is part of the state: a checkpoint keeps the one it began with.
    """

    spec: StreamSpec
    views: tuple[ViewPlan, ...]
    buckets: int = 8

    @property
    def operators(self) -> tuple[WindowOperator, ...]:
        """The operators of the views that have windows, in order."""
        return tuple(view.operator for view in self.views if view.operator is not None)

    @property
    def windowed(self) -> tuple[int, ...]:
        """The numbers of the views that have windows, in order: those that have state."""
        return tuple(number for number, view in enumerate(self.views) if view.operator is not None)
