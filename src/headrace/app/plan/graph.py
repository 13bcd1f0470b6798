"""The graph of an application, and the same as text; no I/O. `headrace.app.plan.picture` draws it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.app.plan.dataflow import PlannedGraph
from headrace.app.plan.planner import AppPlan, PlannedStream, PlannedView
from headrace.app.plan.stages import StageLine, stages_of
from headrace.streams.engine import step_in_words
from headrace.streams.operators import Hopping, Session, Sliding, Window

__all__ = ["AppGraph", "HookLine", "ViewLine", "as_text", "graph_of", "span"]

_Each = TypeVar("_Each")
_LAST = "└─"
_UNITS = (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000))


@dataclass(frozen=True, slots=True)
class ViewLine:
    """The way of one view: what it reads, what is done on the way, where it ends.

    `topic` is the derived topic that it writes, None for a view. `stages` are those of a dataflow, and
    `why` says what the planner made of it.
    """

    stream: str
    steps: tuple[str, ...]
    view: str
    store: str
    topic: str | None = None
    stages: tuple[StageLine, ...] = ()
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        line = {"stream": self.stream, "steps": list(self.steps), "view": self.view, "store": self.store}
        return {**line, "why": self.why, "stages": [each.to_json() for each in self.stages]}


@dataclass(frozen=True, slots=True)
class HookLine:
    """A hook: which topic it follows, and who is notified, in words."""

    hook: str
    topic: str
    words: str


@dataclass(frozen=True, slots=True)
class AppGraph:
    """An application as lines, grouped by the stream they begin with, and who is notified of its topics."""

    app: str
    streams: dict[str, str]
    lines: tuple[ViewLine, ...]
    hooks: tuple[HookLine, ...] = ()

    def to_json(self) -> dict[str, Any]:
        lines = [each.to_json() for each in self.lines]
        hooks = [{"hook": each.hook, "topic": each.topic, "words": each.words} for each in self.hooks]
        return {"app": self.app, "streams": self.streams, "views": lines, "hooks": hooks}

    def begins(self) -> tuple[str, ...]:
        """Where ways begin: streams, and topics that are followed and come from elsewhere."""
        followed = (hook.topic for hook in self.hooks if not self._is_written(hook.topic))
        return tuple(dict.fromkeys([*(line.stream for line in self.lines), *followed]))

    def from_begin(self, begin: str) -> tuple[tuple[ViewLine, ...], tuple[str, ...]]:
        """The lines that begin there, and who is notified of its records."""
        lines = tuple(line for line in self.lines if line.stream == begin)
        return lines, () if self._is_written(begin) else self.hooks_of(begin)

    def hooks_of(self, topic: str | None) -> tuple[str, ...]:
        """Who is notified of a topic's records, in words."""
        return tuple(hook.words for hook in self.hooks if hook.topic == topic)

    def _is_written(self, topic: str) -> bool:
        return any(line.topic == topic for line in self.lines)


def graph_of(plan: AppPlan) -> AppGraph:
    """The graph of a planned application."""
    streams = {each.name: _describe_stream(each) for each in plan.streams}
    lines = [
        ViewLine(
            each.name,
            tuple(_steps(view)),
            view.view.name,
            _store(plan, view),
            view.view.topic,
            why=_why(each, view),
        )
        for each in plan.streams
        for view in each.views
    ]
    frames = [
        ViewLine("DataFrame", (), each.view.name, each.view.store or "views.db") for each in plan.frames
    ]
    begins: dict[frozenset[str], str] = {}
    flows = [_flow(plan, each, begins) for each in plan.graphs]
    hooks = [
        HookLine(each.name, each.topic, f"{each.kind} to {each.target.shown}")
        for each in plan.app.hooks.values()
    ]
    return AppGraph(plan.app.name, streams, (*lines, *flows, *frames), tuple(hooks))


def _flow(plan: AppPlan, planned: PlannedGraph, begins: dict[frozenset[str], str]) -> ViewLine:
    """A dataflow as one line: its topics, its operators in their order, its view.

    Dataflows of the same topics begin at the same place, in whatever order they name them; `begins`
    has those seen so far.
    """
    named = [each.spec.topic for each in planned.graph.sources]
    topics = begins.setdefault(frozenset(named), " + ".join(named))
    steps = tuple(node.name for node in planned.graph.nodes)
    url = planned.view.store or plan.app.store or "sqlite"
    stages = stages_of(planned)
    return ViewLine(
        topics,
        steps,
        planned.view.name,
        f"topic {planned.view.topic}" if planned.view.topic is not None else url.partition("://")[0],
        stages=stages,
        why=f"a query of its own over {_counted(len(planned.graph.sources), 'topic')}, "
        f"in {_counted(len(stages), 'stage')}",
    )


def _why(planned: PlannedStream, view: PlannedView) -> str:
    """What the planner made of a view of one stream."""
    count = len(planned.views)
    shared = f"one query for all {count} views of {planned.name}" if count > 1 else "a query of its own"
    if any(each.steps for each in planned.views):
        packed = "Spark computes the steps, then rows are packed"
    else:
        packed = "fused: the source packs rows itself, since no view has steps"
    kept = "no state: rows are spread over tasks by partition" if view.plan.stateful is None else "one stage"
    return f"{shared}; {packed}; {kept}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def as_text(graph: AppGraph) -> str:
    """A tree: streams, under each its views, step by step, and who is notified of a topic under the topic."""
    return "\n".join([graph.app, *_text(graph)])


def _text(graph: AppGraph) -> Iterator[str]:
    for begin in graph.begins():
        yield f"├─ {begin}  {graph.streams.get(begin, '')}".rstrip()
        lines, hooks = graph.from_begin(begin)
        ways = [(_way(line), (*_stage_words(line), *graph.hooks_of(line.topic))) for line in lines]
        for branch, (way, notified) in _branches([*ways, *((words, ()) for words in hooks)]):
            yield f"│  {branch} {way}"
            for twig, words in _branches(notified):
                yield f"│  {' ' if branch == _LAST else '│'}  {twig} {words}"


def _stage_words(line: ViewLine) -> tuple[str, ...]:
    """The stages of a dataflow, each with its operators."""
    return tuple(
        f"stage {stage.number}: {operator.words}  ({operator.why if number else stage.why})"
        for stage in line.stages
        for number, operator in enumerate(stage.operators)
    )


def _way(line: ViewLine) -> str:
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
    steps = [step_in_words(step) for step in planned.steps]
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
