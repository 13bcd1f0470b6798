"""The graph of an application as a picture; no I/O.

Boxes from left to right, a way to a row. A row that begins like the one above it hangs
on the box where the two part: views on their stream, hooks on their topic.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from headrace.app.plan.graph import AppGraph, ViewLine

__all__ = ["as_svg"]

_ROW, _PAD, _CHAR, _HIGH, _GAP = 64, 24, 7.9, 36, 34  # the widest of the usual fonts takes 7.83 a letter
_STYLE = (
    "text{font:13px ui-monospace,monospace;fill:#1b2733}rect{rx:7;stroke:#7a8ea3;fill:#f3f6f9}"
    ".stream{fill:#dcebff}.view{fill:#dff5e3}.store{fill:#fff1d6}.hook{fill:#f9e2ef}"
    "path{stroke:#7a8ea3;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#1c2733;stroke:#53667a}"
    ".stream{fill:#17324f}.view{fill:#173d25}.store{fill:#46351a}.hook{fill:#472337}path{stroke:#53667a}}"
)


@dataclass(frozen=True, slots=True)
class _Box:
    text: str
    kind: str
    column: int


@dataclass(frozen=True, slots=True)
class _Row:
    """The boxes of a way; the first `shared` of them stand in a row further up, and the rest hang on them."""

    boxes: tuple[_Box, ...]
    shared: int


def as_svg(graph: AppGraph) -> str:
    """A picture that follows the reader's light or dark mode."""
    rows = list(_rows(graph))
    columns = _Columns(rows)
    heights: dict[int, float] = {}
    body = [part for number, row in enumerate(rows) for part in _drawn(row, number, columns, heights)]
    height = _ROW * len(rows) + _PAD
    title = f"<title>{escape(graph.app)}</title><style>{_STYLE}</style>"
    size = f'viewBox="0 0 {columns.end} {height}" width="{columns.end}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return f"{head}{title}{''.join(body)}</svg>\n"


def _rows(graph: AppGraph) -> Iterator[_Row]:
    """A row a line, and one for each hook that finds no place in the row of its topic."""
    steps = max((len(line.steps) for line in graph.lines), default=0)

    def hooks(words: Sequence[str]) -> list[_Box]:
        return [_Box(each, "hook", steps + 3) for each in words]

    for begin in graph.begins():
        lines, notified = graph.from_begin(begin)
        stream, shared = _Box(begin, "stream", 0), 0
        for line in lines:
            way, followers = (stream, *_way(line, steps)), hooks(graph.hooks_of(line.topic))
            yield _Row((*way, *followers[:1]), shared)
            yield from (_Row((*way, hook), len(way)) for hook in followers[1:])
            shared = 1
        for hook in hooks(notified):
            yield _Row((stream, hook), shared)
            shared = 1


def _way(line: ViewLine, steps: int) -> Iterator[_Box]:
    yield from (_Box(step, "step", number) for number, step in enumerate(line.steps, 1))
    yield _Box(line.view, "view", steps + 1)
    yield _Box(line.store, "store", steps + 2)


class _Columns:
    """Where each column begins and ends, by the longest text in it."""

    def __init__(self, rows: Sequence[_Row]) -> None:
        widths: dict[int, float] = {}
        for box in (box for row in rows for box in row.boxes):
            widths[box.column] = max(widths.get(box.column, 0), len(box.text) * _CHAR + 20)
        self._edges: dict[int, tuple[float, float]] = {}
        end: float = _PAD - _GAP
        for column, width in sorted(widths.items()):
            begin, end = end + _GAP, end + _GAP + width
            self._edges[column] = begin, end
        self.end = round(max(end, _PAD) + _PAD)

    def edges(self, box: _Box) -> tuple[float, float]:
        """Left and right."""
        return self._edges[box.column]


def _drawn(row: _Row, number: int, columns: _Columns, heights: dict[int, float]) -> Iterator[str]:
    """The boxes that are new in a row, and what leads to them.

    `heights` has the height at which each column was drawn last.
    """
    middle = _PAD + number * _ROW + _HIGH / 2
    before = row.boxes[row.shared - 1] if row.shared else None
    if before is not None:
        left, right = columns.edges(before)
        bottom = heights[before.column] + _HIGH / 2
        yield f'<path d="M{(left + right) / 2:.0f} {bottom:.0f}V{middle:.0f}H{right:.0f}"/>'
    for box in row.boxes[row.shared :]:
        left, right = columns.edges(box)
        if before is not None:
            yield f'<path d="M{columns.edges(before)[1]:.0f} {middle:.0f}H{left:.0f}"/>'
        yield _drawn_box(box, left, right, middle)
        heights[box.column] = middle
        before = box


def _drawn_box(box: _Box, left: float, right: float, middle: float) -> str:
    size = f'width="{right - left:.0f}" height="{_HIGH}"'
    drawn = f'<rect class="{box.kind}" x="{left:.0f}" y="{middle - _HIGH / 2:.0f}" {size}/>'
    return f'{drawn}<text x="{left + 10:.0f}" y="{middle + 4:.0f}">{escape(box.text)}</text>'
