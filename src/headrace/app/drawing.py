"""The graph of an application, and the same as text; no I/O. `headrace.app.picture` draws it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.app.manifest import describe_step
from headrace.app.planning import AppPlan, PlannedStream, PlannedView
from headrace.streams.operators import Hopping, Session, Sliding, Window

__all__ = ["Graph", "Line", "Told", "as_text", "graph_of", "span"]

_Each = TypeVar("_Each")
_LAST = "└─"
_UNITS = (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000))


@dataclass(frozen=True, slots=True)
class Line:
    """The way of one view: what it reads, what is done on the way, where it ends.

    `topic` is the derived topic that it writes, None for a view.
    """

    stream: str
    steps: tuple[str, ...]
    view: str
    store: str
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """A hook: which topic it follows, and who is told, in words."""

    hook: str
    topic: str
    words: str


@dataclass(frozen=True, slots=True)
class Graph:
    """An application as lines, grouped by the stream they begin with, and who is told of its topics."""

    app: str
    streams: dict[str, str]
    lines: tuple[Line, ...]
    hooks: tuple[Told, ...] = ()

    def to_json(self) -> dict[str, Any]:
        lines = [
            {"stream": each.stream, "steps": list(each.steps), "view": each.view, "store": each.store}
            for each in self.lines
        ]
        hooks = [{"hook": each.hook, "topic": each.topic, "words": each.words} for each in self.hooks]
        return {"app": self.app, "streams": self.streams, "views": lines, "hooks": hooks}

    def begins(self) -> tuple[str, ...]:
        """Where ways begin: streams, and topics that are followed and come from elsewhere."""
        followed = (hook.topic for hook in self.hooks if not self._is_written(hook.topic))
        return tuple(dict.fromkeys([*(line.stream for line in self.lines), *followed]))

    def from_begin(self, begin: str) -> tuple[tuple[Line, ...], tuple[str, ...]]:
        """The lines that begin there, and who is told of its records."""
        lines = tuple(line for line in self.lines if line.stream == begin)
        return lines, () if self._is_written(begin) else self.told_of(begin)

    def told_of(self, topic: str | None) -> tuple[str, ...]:
        """Who is told of a topic's records, in words."""
        return tuple(hook.words for hook in self.hooks if hook.topic == topic)

    def _is_written(self, topic: str) -> bool:
        return any(line.topic == topic for line in self.lines)


def graph_of(plan: AppPlan) -> Graph:
    """The graph of a planned application."""
    streams = {each.name: _describe_stream(each) for each in plan.streams}
    lines = [
        Line(each.name, tuple(_steps(view)), view.view.name, _store(plan, view), view.view.topic)
        for each in plan.streams
        for view in each.views
    ]
    frames = [Line("DataFrame", (), each.view.name, each.view.store or "views.db") for each in plan.frames]
    hooks = [
        Told(each.name, each.topic, f"{each.kind} to {each.target.shown}") for each in plan.app.hooks.values()
    ]
    return Graph(plan.app.name, streams, (*lines, *frames), tuple(hooks))


def as_text(graph: Graph) -> str:
    """A tree: streams, under each its views, step by step, and who is told of a topic under the topic."""
    return "\n".join([graph.app, *_text(graph)])


def _text(graph: Graph) -> Iterator[str]:
    for begin in graph.begins():
        yield f"├─ {begin}  {graph.streams.get(begin, '')}".rstrip()
        lines, told = graph.from_begin(begin)
        ways = [(_way(line), graph.told_of(line.topic)) for line in lines]
        for branch, (way, told_of_it) in _branches([*ways, *((words, ()) for words in told)]):
            yield f"│  {branch} {way}"
            for twig, words in _branches(told_of_it):
                yield f"│  {' ' if branch == _LAST else '│'}  {twig} {words}"


def _way(line: Line) -> str:
    return f"{' → '.join([*line.steps, line.view])}  ({line.store})"


def _branches(of: Sequence[_Each]) -> Iterator[tuple[str, _Each]]:
    """Each with the lines that lead to it in a tree."""
    for number, each in enumerate(of, 1):
        yield _LAST if number == len(of) else "├─", each


def _describe_stream(planned: PlannedStream) -> str:
    spec, stream = planned.stream.spec, planned.stream
    time = spec.event_time or "the record's time"
    late = f"corrected for {span(stream.correct_for_us)}" if stream.correct_for_us else "dropped and kept"
    return f"event time {time}, lateness {span(spec.lateness_us)}, stragglers {late}"


def _steps(planned: PlannedView) -> list[str]:
    steps = [describe_step(step) for step in planned.steps]
    operator = planned.plan.operator
    if operator is not None:
        by = f" by {', '.join(operator.keys)}" if operator.keys else ""
        steps.append(f"{describe_window(operator.window)}{by}")
        steps.append(", ".join(name for name, _ in operator.aggregates))
    return steps


def _store(plan: AppPlan, planned: PlannedView) -> str:
    if planned.view.topic is not None:
        return f"topic {planned.view.topic}"
    url = planned.view.store or plan.app.store or "sqlite"
    return url.partition("://")[0]


def describe_window(window: Window) -> str:
    """A window in words."""
    if isinstance(window, Session):
        return f"session, gap {span(window.gap_us)}"
    if isinstance(window, Hopping):
        return f"hopping {span(window.size_us)} every {span(window.step_us)}"
    return f"{'sliding' if isinstance(window, Sliding) else 'tumbling'} {span(window.size_us)}"


def span(us: int) -> str:
    """A span of time in the largest unit that divides it."""
    for name, size in _UNITS:
        if us and us % size == 0:
            return f"{us // size} {name}{'' if us == size else 's'}"
    return f"{us / 1_000_000:g} seconds"
