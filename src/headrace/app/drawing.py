"""The graph of an application, as text and as a picture; no I/O."""

from dataclasses import dataclass
from html import escape
from typing import Any

from headrace.app.manifest import describe_step
from headrace.app.planning import AppPlan, PlannedStream, PlannedView
from headrace.streams.operators import Hopping, Session, Sliding, Window

__all__ = ["Graph", "Line", "as_svg", "as_text", "graph_of"]

_UNITS = (("day", 86_400_000_000), ("hour", 3_600_000_000), ("minute", 60_000_000), ("second", 1_000_000))


@dataclass(frozen=True, slots=True)
class Line:
    """The way of one view: what it reads, what is done on the way, where it ends."""

    stream: str
    steps: tuple[str, ...]
    view: str
    store: str


@dataclass(frozen=True, slots=True)
class Graph:
    """An application as lines, grouped by the stream they begin with."""

    app: str
    streams: dict[str, str]
    lines: tuple[Line, ...]

    def to_json(self) -> dict[str, Any]:
        lines = [
            {"stream": each.stream, "steps": list(each.steps), "view": each.view, "store": each.store}
            for each in self.lines
        ]
        return {"app": self.app, "streams": self.streams, "views": lines}


def graph_of(plan: AppPlan) -> Graph:
    """The graph of a planned application."""
    streams = {each.name: _describe_stream(each) for each in plan.streams}
    lines = [
        Line(each.name, tuple(_steps(view)), view.view.name, _store(plan, view))
        for each in plan.streams
        for view in each.views
    ]
    frames = [Line("DataFrame", (), each.view.name, each.view.store or "views.db") for each in plan.frames]
    return Graph(plan.app.name, streams, (*lines, *frames))


def as_text(graph: Graph) -> str:
    """A tree: streams, under each its views, step by step."""
    lines = [graph.app]
    for stream in dict.fromkeys(line.stream for line in graph.lines):
        lines.append(f"├─ {stream}  {graph.streams.get(stream, '')}".rstrip())
        own = [line for line in graph.lines if line.stream == stream]
        for line in own:
            way = " → ".join([*line.steps, line.view])
            lines.append(f"│  {'└─' if line is own[-1] else '├─'} {way}  ({line.store})")
    return "\n".join(lines)


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


# --- the picture --------------------------------------------------------------------------------

_ROW, _PAD, _CHAR, _HIGH = 64, 24, 7.9, 36  # the widest of the usual fonts takes 7.83 a letter
_STYLE = (
    "text{font:13px ui-monospace,monospace;fill:#1b2733}rect{rx:7;stroke:#7a8ea3;fill:#f3f6f9}"
    ".stream{fill:#dcebff}.view{fill:#dff5e3}.store{fill:#fff1d6}path{stroke:#7a8ea3;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#1c2733;stroke:#53667a}"
    ".stream{fill:#17324f}.view{fill:#173d25}.store{fill:#46351a}path{stroke:#53667a}}"
)


def as_svg(graph: Graph) -> str:
    """The same from left to right, as a picture that follows the reader's light or dark mode."""
    rows = [
        [
            (line.stream, "stream"),
            *((step, "step") for step in line.steps),
            (line.view, "view"),
            (line.store, "store"),
        ]
        for line in graph.lines
    ]
    columns = max((len(row) for row in rows), default=0)
    placed = [row[:-2] + [("", "gap")] * (columns - len(row)) + row[-2:] for row in rows]
    widths = [max(len(row[index][0]) for row in placed) * _CHAR + 20 for index in range(columns)]
    lefts = [_PAD + sum(widths[:index]) + index * 34 for index in range(columns)]
    body, follows = [], 0
    for number, row in enumerate(placed):
        follows = follows + 1 if number and placed[number - 1][0] == row[0] else 0
        body.append(_row(row, number, lefts, widths, follows))
    width = round(lefts[-1] + widths[-1] + _PAD) if columns else 2 * _PAD
    height = _ROW * len(rows) + _PAD
    title = f"<title>{escape(graph.app)}</title><style>{_STYLE}</style>"
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return f"{head}{title}{''.join(body)}</svg>\n"


def _row(
    row: list[tuple[str, str]], number: int, lefts: list[float], widths: list[float], follows: int
) -> str:
    """One line of boxes; the stream's own box stands in the first of its rows, and the others hang on it."""
    middle, parts, last = _PAD + number * _ROW + _HIGH / 2, [], None
    for index, (text, kind) in enumerate(row):
        if kind == "gap":
            continue
        if last is not None:
            begin = lefts[last] + widths[last]
            parts.append(f'<path d="M{begin:.0f} {middle:.0f}H{lefts[index]:.0f}"/>')
        if index or not follows:
            parts.append(_box(text, kind, lefts[index], middle, widths[index]))
        else:
            turn, right = lefts[0] + widths[0] / 2, lefts[0] + widths[0]
            above = middle - _ROW + (_HIGH / 2 if follows == 1 else 0)
            parts.append(f'<path d="M{turn:.0f} {above:.0f}V{middle:.0f}H{right:.0f}"/>')
        last = index
    return "".join(parts)


def _box(text: str, kind: str, left: float, middle: float, width: float) -> str:
    top = middle - _HIGH / 2
    box = f'<rect class="{kind}" x="{left:.0f}" y="{top:.0f}" width="{width:.0f}" height="{_HIGH}"/>'
    return f'{box}<text x="{left + 10:.0f}" y="{middle + 4:.0f}">{escape(text)}</text>'
