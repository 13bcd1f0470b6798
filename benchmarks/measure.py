"""Pieces that the benchmarks share: samples, paired ratios, bars, what the system knows, tables."""

import contextlib
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

__all__ = ["Bar", "Samples", "host_kept_s", "peak_bytes", "print_table", "processor_s"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What the ratio ours / theirs must reach: at least, or at most, `factor`."""

    factor: float
    at_least: bool

    def verdict(self, ratio: float) -> str:
        passed = ratio >= self.factor if self.at_least else ratio <= self.factor
        return f"{'≥' if self.at_least else '≤'} {self.factor:g} {'pass' if passed else 'MISS'}"


@dataclass(slots=True)
class Samples:
    """Figures by system, subject and measure, in the order of the rounds.

    Ratios are taken round by round, between runs that stand next to each other in
    time, and their median is the result: a neighbour who comes and goes on a shared
    machine then disturbs both sides of a pair, or one pair of several.
    """

    values: dict[tuple[str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, system: str, subject: str, measure: str, value: float) -> None:
        self.values[system, subject, measure].append(value)

    def median(self, system: str, subject: str, measure: str) -> float | None:
        found = self.values.get((system, subject, measure))
        return statistics.median(found) if found else None

    def ratios(self, ours: str, theirs: str, subject: str, measure: str) -> list[float]:
        a, b = self.values.get((ours, subject, measure), []), self.values.get((theirs, subject, measure), [])
        return [x / y for x, y in zip(a, b, strict=False) if y]

    def median_ratio(self, ours: str, theirs: str, subject: str, measure: str) -> float | None:
        ratios = self.ratios(ours, theirs, subject, measure)
        return statistics.median(ratios) if ratios else None

    def all_of(self, measure: str) -> list[float]:
        """The figures of one measure, whatever the system and the subject."""
        return [value for key, found in self.values.items() if key[2] == measure for value in found]

    def as_json(self) -> list[dict[str, object]]:
        return [
            {
                "system": system,
                "subject": subject,
                "measure": measure,
                "median": statistics.median(v),
                "values": v,
            }
            for (system, subject, measure), v in self.values.items()
        ]


def peak_bytes(pid: int) -> int:
    """The largest resident memory that a process has had; nobody need watch it, and disturb it, for that."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


def processor_s(pid: int) -> float:
    """Seconds of the processor that a process and its children have used so far."""
    root = psutil.Process(pid)
    spent = 0.0
    for each in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            spent += times.user + times.system + times.children_user + times.children_system
    return spent


def host_kept_s() -> float:
    """Processor time since the start that the host of a virtual machine gave to others."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


def print_table(rows: Iterable[tuple[str, ...]], out: Callable[[str], None] = print) -> None:
    """Columns as wide as their widest cell; the first row is the heading."""
    table = list(rows)
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    for i, row in enumerate(table):
        out("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if i == 0:
            out("  ".join("-" * width for width in widths))
