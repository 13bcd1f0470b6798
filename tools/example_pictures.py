"""Pictures of the examples' results for docs/guides/examples.md, from what was really computed.

The tests of the examples draw every picture anew and compare it with the one in
`docs/pictures`; with HEADRACE_WRITE_PICTURES=1 in the environment they write it instead.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"

_WIDTH, _LEFT, _RIGHT, _ROW, _DOTS = 760, 76, 230, 18, 22
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.quiet { fill: #57606a; font-size: 11px }
.old { text-decoration: line-through; fill: #57606a }
.bar { fill: #54aeff; fill-opacity: .45; stroke: #0969da }
.dot { fill: #0969da } .late { stroke: #cf222e; stroke-width: 2; fill: none }
line.axis { stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .quiet, .old { fill: #9198a1 }
  .bar { fill: #1f6feb; stroke: #58a6ff } .dot { fill: #79c0ff }
  .late { stroke: #ff7b72 } line.axis { stroke: #3d444d }
}
"""


@dataclass(frozen=True, slots=True)
class Dot:
    """A record: whose, when it happened, and whether it came too late."""

    lane: str
    at: datetime
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Bar:
    """A result: of which key, of which span, what it says, and what it said before a correction."""

    lane: str
    start: datetime
    end: datetime
    label: str
    old: str = ""


def kept(name: str, picture: str) -> str:
    """The picture as the documentation has it; written now if that is asked for."""
    path = PICTURES / f"{name}.svg"
    if os.environ.get("HEADRACE_WRITE_PICTURES"):
        PICTURES.mkdir(exist_ok=True)
        path.write_text(picture)
    return path.read_text() if path.exists() else ""


def timeline(dots: Sequence[Dot], bars: Sequence[Bar], names: str) -> str:
    """Per key a lane: its records as dots (crosses where too late), its results, of these names, as bars."""
    moments = [each.at for each in dots] + [each for bar in bars for each in (bar.start, bar.end)]
    first, last = min(moments), max(moments)
    width = _WIDTH - _LEFT - _RIGHT

    def x(moment: datetime) -> int:
        return _LEFT + round(width * ((moment - first) / (last - first or timedelta(1))))

    parts: list[str] = []
    y = 24
    for lane in sorted({each.lane for each in dots} | {each.lane for each in bars}):
        own = [bar for bar in bars if bar.lane == lane]
        parts.append(f'<text x="4" y="{y + 9}">{escape(lane)}</text>')
        parts.extend(_dot(x(dot.at), y + 5, dot) for dot in dots if dot.lane == lane)
        for number, bar in enumerate(own):
            parts.extend(_bar(x(bar.start), x(bar.end), y + _DOTS - 4 + number * _ROW, bar))
        y += _DOTS + len(own) * _ROW + 8
    axis = [
        f'<text class="quiet" x="{x(each)}" y="12" text-anchor="{anchor}">{each:%H:%M:%S}</text>'
        for each, anchor in ((first, "start"), (last, "end"))
    ]
    axis += [f'<line class="axis" x1="{x(each)}" y1="16" x2="{x(each)}" y2="{y}"/>' for each in (first, last)]
    axis.append(f'<text class="quiet" x="{_WIDTH - _RIGHT + 8}" y="12">{escape(names)}</text>')
    return _svg(y + 4, [*axis, *parts])


def table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows under the names of their columns."""
    step = (_WIDTH - 16) // max(len(names), 4)
    parts = [
        f'<text class="quiet" x="{8 + step * column}" y="14">{escape(name)}</text>'
        for column, name in enumerate(names)
    ]
    parts.append(f'<line class="axis" x1="4" y1="20" x2="{_WIDTH - 4}" y2="20"/>')
    for number, row in enumerate(rows):
        parts.extend(
            f'<text x="{8 + step * column}" y="{36 + number * _ROW}">{escape(str(value))}</text>'
            for column, value in enumerate(row)
        )
    return _svg(36 + len(rows) * _ROW, parts)


def _dot(x: int, y: int, dot: Dot) -> str:
    if dot.is_late:
        return f'<path class="late" d="M{x - 4} {y - 4}l8 8m0 -8l-8 8"/>'
    return f'<circle class="dot" cx="{x}" cy="{y}" r="4"/>'


def _bar(left: int, right: int, y: int, bar: Bar) -> Iterator[str]:
    yield f'<rect class="bar" x="{left}" y="{y}" width="{max(right - left, 2)}" height="{_ROW - 5}" rx="3"/>'
    old = f' <tspan class="old" dx="4">{escape(bar.old)}</tspan>' if bar.old else ""
    x = _WIDTH - _RIGHT + 8
    yield f'<text x="{x}" y="{y + 11}">{escape(bar.label)}{old}</text>'


def _svg(height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *parts, "</svg>", ""])
