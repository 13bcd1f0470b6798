"""Counters and histograms as plain numbers, and Prometheus' text format of them.

Our own, because a produce request takes about 100 microseconds and its share for
counting should be one or two: an observation is a dictionary look-up and an
addition. Labels are bounded: once a family has `MOST_SERIES` combinations,
further ones are counted together as "other".
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import NamedTuple

__all__ = ["CONTENT_TYPE", "LATENCY_BOUNDS_S", "MOST_SERIES", "Counter", "Family", "Histogram", "render"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_SERIES = 1000
LATENCY_BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """One metric: its name, kind and help, and a number for each combination of labels.

    A sample is the suffix of its name, its labels and its value.
    """

    name: str
    kind: str
    help: str
    samples: Iterable[tuple[str, Labels, float]]


class Counter:
    """Numbers that only grow, one for each combination of label values. Event loop only."""

    def __init__(self, name: str, help: str, *labels: str) -> None:  # noqa: A002 - Prometheus' word
        self.name = name
        self.help = help
        self._labels = labels
        self._series: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, amount: float, *values: str) -> None:
        """Adds to the number with these label values."""
        series = self._series
        if values not in series and len(series) >= MOST_SERIES:
            values = ("other",) * len(values)
        series[values] = series.get(values, 0) + amount

    def value(self, *values: str) -> float:
        """The number with these label values, 0 if nothing was added."""
        return self._series.get(values, 0)

    def family(self) -> Family:
        """All numbers as they are now; any thread."""
        series = sorted(self._series.copy().items())
        samples = [("", tuple(zip(self._labels, values, strict=True)), value) for values, value in series]
        return Family(self.name, "counter", self.help, samples)


class Histogram:
    """How often something took how long, by label values. Any thread may observe."""

    def __init__(self, name: str, help: str, *labels: str) -> None:  # noqa: A002 - Prometheus' word
        self.name = name
        self.help = help
        self._labels = labels
        self._series: dict[tuple[str, ...], list[float]] = {}
        self._lock = Lock()

    def observe(self, seconds: float, *values: str) -> None:
        """Counts one observation."""
        with self._lock:
            series = self._series.get(values)
            if series is None:
                if len(self._series) >= MOST_SERIES:
                    values = ("other",) * len(values)
                series = self._series.setdefault(values, [0] * (len(LATENCY_BOUNDS_S) + 2))
            series[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
            series[-1] += seconds

    def family(self) -> Family:
        """All series as they are now; any thread."""
        with self._lock:
            series = sorted((values, list(counts)) for values, counts in self._series.items())
        samples = [sample for values, counts in series for sample in self._samples(values, counts)]
        return Family(self.name, "histogram", self.help, samples)

    def _samples(self, values: tuple[str, ...], counts: list[float]) -> Iterator[tuple[str, Labels, float]]:
        labels = tuple(zip(self._labels, values, strict=True))
        total = 0.0
        for bound, count in zip((*LATENCY_BOUNDS_S, "+Inf"), counts[:-1], strict=True):
            total += count
            yield "_bucket", (*labels, ("le", str(bound))), total
        yield "_sum", labels, counts[-1]
        yield "_count", labels, total


def render(families: Iterable[Family]) -> str:
    """Prometheus' text format, version 0.0.4."""
    lines: list[str] = []
    for name, kind, text, samples in families:
        lines += [f"# HELP {name} {_escaped_help(text)}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{suffix}{_labels(labels)} {_number(value)}" for suffix, labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escaped(value: str) -> str:
    return _escaped_help(value).replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
