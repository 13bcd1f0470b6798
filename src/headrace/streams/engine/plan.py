"""What one query computes: a stream, and the views that follow it."""

from dataclasses import dataclass

from headrace.streams.operators import LatestOperator, LatestState, OpenWindows, WindowOperator
from headrace.streams.spec import StreamSpec

__all__ = ["ROW_STAMPS", "StreamPlan", "ViewPlan"]

ROW_STAMPS = ("_partition", "_offset", "_event_time", "_watermark")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPlan:
    """One view: the columns it needs, and the windows they go through, or the key whose last row it shows.

    Without either it is rows as they are.
    """

    name: str
    columns: tuple[str, ...]
    operator: WindowOperator | None = None
    latest: LatestOperator | None = None

    @property
    def stateful(self) -> WindowOperator | LatestOperator | None:
        """What keeps state for the view; None where nothing does."""
        return self.operator or self.latest


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """All views of one stream, and the number of buckets that their keys are spread over.

    The number is part of the state: a checkpoint keeps the one it began with. `followers` are the
    queries that read what this one makes and go on with its event time.
    """

    spec: StreamSpec
    views: tuple[ViewPlan, ...]
    buckets: int = 8
    followers: "tuple[StreamPlan, ...]" = ()

    @property
    def operators(self) -> tuple[WindowOperator, ...]:
        """The operators of the views that have windows, in order."""
        return tuple(view.operator for view in self.views if view.operator is not None)

    @property
    def stateful(self) -> dict[int, WindowOperator | LatestOperator]:
        """What keeps state, by the number of its view, in order."""
        found = ((number, view.stateful) for number, view in enumerate(self.views))
        return {number: each for number, each in found if each is not None}

    def new_states(self) -> list[OpenWindows | LatestState]:
        """The states of a bucket that has seen nothing, view after view."""
        return [each.new_state() for each in self.stateful.values()]
