"""The picture of the demonstration's revenue in the README, from what its application makes of its traffic.

The view is the demonstration's own, run by `headrace.testing.run_app` on twelve
minutes of the demonstration's own traffic. A test draws it anew and compares; with
HEADRACE_WRITE_PICTURES=1 in the environment it writes it instead.
"""

import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from zlib import crc32

from headrace.app import App
from headrace.app.loading import import_app
from headrace.demo.customers import create_customers
from headrace.demo.traffic import ShopEvent, slot_at, traffic
from headrace.testing import AppRun, run_app

SHOP = Path(__file__).parent.parent / "src" / "headrace" / "demo" / "shop.py"
VIEW, TOPIC, PARTITIONS = "revenue_per_minute", "shop.orders", 4
START, MINUTES, RATE, SEED = datetime(2026, 1, 5, 9, tzinfo=UTC), 12, 20, 6
CORRECTION = 2
COUNTERS = ("on_time", "corrected", "dropped", "dead")

_WIDTH, _LEFT, _TOP, _HIGH = 760, 58, 46, 170
_COLOURS = ("#0969da", "#1a7f37", "#9a6700", "#8250df")
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.quiet{fill:#57606a;font-size:11px}"
    ".fixed{fill:#cf222e;font-size:11px}.axis{stroke:#d0d7de}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#9198a1}.fixed{fill:#ff7b72}"
    ".axis{stroke:#3d444d}rect{fill-opacity:.8}}"
)


@dataclass(frozen=True, slots=True)
class Minute:
    """What the view says of one minute: revenue by region, and how much of it stragglers added later."""

    start: datetime
    revenue: Mapping[str, float]
    corrected: float


def shop_app() -> App:
    """The demonstration's application, which asks its database for the columns of customers."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHOP_DATABASE"] = url = f"sqlite:///{folder}/shop.db"
        create_customers(url, START)
        try:
            return import_app(SHOP)
        finally:
            del os.environ["SHOP_DATABASE"]


def shop_minutes() -> tuple[list[Minute], dict[str, int]]:
    """The minutes of the demonstration's revenue, and its counters."""
    app = shop_app()
    app.views = {VIEW: app.views[VIEW]}  # the others need a Spark, for their conditions
    with run_app(app, start=START) as run:
        _send(run)
        return list(_minutes(run)), run.counters(VIEW)


def _send(run: AppRun) -> None:
    """The orders, a micro-batch a minute."""
    slots = traffic(SEED, RATE, slot_at(START, RATE))
    for _ in range(MINUTES):
        for event in (each for slot in islice(slots, 60 * RATE) for each in slot):
            if isinstance(event, ShopEvent) and event.topic == TOPIC:
                at = datetime.fromtimestamp(event.timestamp_ms / 1000, UTC)
                run.send(TOPIC, event.value, key=event.key, at=at, partition=crc32(event.key) % PARTITIONS)
        run.batch()


def _minutes(run: AppRun) -> Iterator[Minute]:
    corrected: Counter[str] = Counter()
    for change in run.changes(VIEW):
        if change.kind == CORRECTION and change.after is not None:
            before = change.before["revenue"] if change.before else 0.0
            corrected[change.key["window_start"]] += change.after["revenue"] - before
    revenue: defaultdict[datetime, dict[str, float]] = defaultdict(dict)
    for row in run.rows(VIEW):
        revenue[row["window_start"]][row["region"]] = row["revenue"]
    for start in sorted(each for each in revenue if each >= START):
        yield Minute(start, revenue[start], corrected[f"{start:%Y-%m-%dT%H:%M:%S}.000000Z"])


def shop_picture(minutes: list[Minute], counters: Mapping[str, int]) -> str:
    """Columns of revenue by region, and below each what stragglers added after it was published."""
    regions = sorted({region for minute in minutes for region in minute.revenue})
    top = max(sum(minute.revenue.values()) for minute in minutes)
    step = (_WIDTH - _LEFT - 8) / len(minutes)
    parts = [f'<text x="4" y="16">{VIEW}</text>', *_legend(regions)]
    bottom = _TOP + _HIGH
    for number, minute in enumerate(minutes):
        left, y = _LEFT + number * step, float(bottom)
        for region, colour in zip(regions, _COLOURS, strict=True):
            height = _HIGH * minute.revenue.get(region, 0.0) / top
            y -= height
            size = f'x="{left:.1f}" y="{y:.1f}" width="{step - 8:.1f}" height="{height:.1f}"'
            parts.append(f'<rect {size} fill="{colour}"/>')
        middle = left + (step - 8) / 2
        parts.append(_text(middle, y - 5, f"{sum(minute.revenue.values()):,.0f}", "quiet"))
        parts.append(_text(middle, bottom + 16, f"{minute.start:%H:%M}", "quiet"))
        if minute.corrected:
            parts.append(_text(middle, bottom + 32, f"{minute.corrected:+,.0f}", "fixed"))
    parts.append(f'<text class="fixed" x="4" y="{bottom + 32}">corrected</text>')
    parts.append(f'<line class="axis" x1="4" y1="{bottom}" x2="{_WIDTH - 8}" y2="{bottom}"/>')
    counted = ", ".join(
        f"{counters[name]:,} {name.replace('_', ' ')}" for name in COUNTERS if name in counters
    )
    parts.append(f'<text class="quiet" x="4" y="{bottom + 54}">orders: {counted}</text>')
    return _svg(bottom + 62, parts)


def _legend(regions: list[str]) -> Iterator[str]:
    for number, (region, colour) in enumerate(zip(regions, _COLOURS, strict=True)):
        left = _WIDTH - 70 * (len(regions) - number)
        yield f'<rect x="{left}" y="7" width="10" height="10" fill="{colour}"/>'
        yield f'<text x="{left + 15}" y="16">{region}</text>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{text}</text>'


def _svg(height: int, parts: list[str]) -> str:
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>'
    return "\n".join([head, *parts, "</svg>", ""])
