"""Claim: memory is bounded by what a view must hold, and does not grow under steady load.

    python benchmarks/memory.py [--cases "hot key" "large table" "far behind" steady]
        [--scale 1.0] [--minutes 60] [--rate 1000] [--json FILE]

Each case is an application of its own on a log of its own, with the settings of a plain
`headrace run`; its views are held against numpy's answer before anything is printed.

hot key      10 million events; 30 % of the orders are of one customer: joined with the customer's
             row as of their time and grouped by its region, and the three largest of each customer
large table  5 million orders and 500,000 customers, joined by a foreign key and grouped, with a
             million changes and deletes of both
far behind   16 million searches and 4 million clicks of the same half hour: read in equal parts,
             the clicks would soon be far ahead, and all of them would be held
steady       two queries under a steady load for `--minutes`; what is held in the last fifth of
             the time may be at most a tenth (or 64 MB) more than in the middle one, by when the
             five minutes of history that a table has are full

`--scale` makes the first three smaller. Memory is resident memory by kind of process, where pages
that processes share are divided among them (PSS), sampled every second; state is what `headrace
state` shows: rows, and bytes on disk.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from measure import print_table
from memory_steady import SteadyLoad
from memory_topics import CASES, Views, Written, found_in

from headrace.streams.engine import read_buckets
from headrace.testing.broker import BrokerProcess

HERE = Path(__file__).parent
MB = 1 << 20
GROWTH, GROWTH_MB = 1.1, 64
KINDS = ("driver", "JVM", "Python workers", "log")
COLUMNS = (*KINDS, "state rows", "state on disk")


@dataclass(slots=True)
class Held:
    """What was held, sample by sample: megabytes by kind of process, rows, megabytes of state."""

    samples: list[dict[str, float]] = field(default_factory=list)

    def most(self, column: str) -> float:
        return max((each[column] for each in self.samples), default=0.0)

    def in_fifth(self, number: int, column: str) -> float:
        """The median of one fifth of the time."""
        size = max(len(self.samples) // 5, 1)
        return median(each[column] for each in self.samples[number * size : (number + 1) * size])


@contextlib.contextmanager
def watched(driver: int, log: int, data: Path) -> Iterator[Held]:
    """Samples every second until the block ends."""
    held, done = Held(), threading.Event()

    def watch() -> None:
        while not done.wait(1):
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
                held.samples.append({**resident(driver, log), **state_of(data)})

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield held
    finally:
        done.set()
        thread.join()


def resident(driver: int, log: int) -> dict[str, float]:
    """Megabytes by kind of process; whatever is not the driver, its JVM or the log is a Python worker."""
    found = dict.fromkeys(KINDS, 0.0)
    found["driver"], found["log"] = pss(driver), pss(log)
    for each in psutil.Process(driver).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
            found["JVM" if each.name() == "java" else "Python workers"] += pss(each.pid)
    return found


def pss(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def state_of(data: Path) -> dict[str, float]:
    """Rows, and megabytes on disk, of all stages of all queries."""
    rows, disk = 0, 0
    for folder in data.glob("dataflows/*/**/stages/*"):
        for bucket in read_buckets(folder):
            disk += bucket.disk_bytes
            rows += sum(each.rows for state in bucket.states for each in state.inputs)
    return {"state rows": rows, "state on disk": disk / MB}


@contextlib.contextmanager
def application(case: str, bootstrap: str, data: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    with tempfile.TemporaryFile() as messages:
        command = [sys.executable, str(HERE / "memory_ours.py"), case, bootstrap, str(data), *more]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages, text=True
        ) as side:
            try:
                if not read(side):
                    messages.seek(0)
                    raise SystemExit(messages.read().decode(errors="replace")[-3000:])
                yield side
                if side.wait():
                    messages.seek(0)
                    raise SystemExit(messages.read().decode(errors="replace")[-3000:])
            finally:
                side.kill()


def read(side: "subprocess.Popen[str]") -> dict[str, Any]:
    """The next answer; empty if there is none."""
    assert side.stdout is not None
    return json.loads(next((line for line in side.stdout if line.startswith("{")), "{}"))  # type: ignore[no-any-return]


def difference(right: Views, views: dict[str, Any]) -> str:
    """What is wrong, by examples; empty if the views are right."""
    for name, wanted in right.items():
        found = found_in(name, views.get(name, []))
        if found != wanted:
            missing, more = list((wanted - found).items())[:3], list((found - wanted).items())[:3]
            return f"{name}: missing {missing}, too much {more}"
    return ""


def catch_up(case: str, scale: float) -> tuple[str, Written, Held, float]:
    """Runs one case to the end of its log; what is wrong, what was written, what was held, and seconds."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-memory-") as folder,
        BrokerProcess(Path(folder) / "log") as broker,
    ):
        began = time.monotonic()
        written = CASES[case].fill(broker.bootstrap, int(CASES[case].events * scale))
        print(f"  {case}: {written.events:,} events written in {time.monotonic() - began:.0f} s", flush=True)
        began, data = time.monotonic(), Path(folder) / "data"
        with application(case, broker.bootstrap, data) as side, watched(side.pid, broker.pid, data) as held:
            views = read(side)
            seconds = time.monotonic() - began
        return difference(written.views, views), written, held, seconds


def under_load(minutes: float, rate: int) -> tuple[str, Written, Held, float]:
    """The same under a steady load, which ends after so many minutes."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-memory-") as folder,
        BrokerProcess(Path(folder) / "log") as broker,
    ):
        load, data = SteadyLoad(broker.bootstrap, rate), Path(folder) / "data"
        with application("steady", broker.bootstrap, data, "0") as side:
            with watched(side.pid, broker.pid, data) as held:
                seconds = load.run(minutes * 60, _minutely(held))
            load.end()
            wait_for_silence(data)
            assert side.stdin is not None
            side.stdin.close()
            views = read(side)
        return difference(load.views(), views), Written(load.events), held, seconds


def wait_for_silence(data: Path) -> None:
    """Until the states have not changed for a while: what was appended last is in the views."""
    before, since = state_of(data), time.monotonic()
    while time.monotonic() - since < 20:
        time.sleep(1)
        if (now := state_of(data)) != before:
            before, since = now, time.monotonic()


def _minutely(held: Held) -> Callable[[float], None]:
    def tell(minute: float) -> None:
        if held.samples:
            cells = (f"{name} {value:,.0f}" for name, value in held.samples[-1].items())
            print(f"  minute {minute:.0f}: {', '.join(cells)}", flush=True)

    return tell


def growth(held: Held) -> list[str]:
    """Which columns grew between the middle fifth of the time and the last."""
    grown = []
    for column in COLUMNS[:-1]:
        early, late = held.in_fifth(2, column), held.in_fifth(4, column)
        if late > max(early * GROWTH, early + GROWTH_MB if column in KINDS else 0):
            grown.append(f"{column}: {early:,.0f} to {late:,.0f}")
    return grown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="*", default=[*CASES, "steady"])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what was started
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    table = [("case", "events", "seconds", *(f"{each}, MB" for each in KINDS), "state rows", "on disk, MB")]
    kept, wrong = {}, []
    for case in given.cases:
        steady = case == "steady"
        found = under_load(given.minutes, given.rate) if steady else catch_up(case, given.scale)
        reason, written, held, seconds = found
        kept[case] = held.samples
        table.append(
            (case, f"{written.events:,}", f"{seconds:,.0f}", *(f"{held.most(each):,.0f}" for each in COLUMNS))
        )
        if reason:
            wrong.append(f"{case}: {reason}")
        if steady:
            wrong += [f"{case} grew: {each}" for each in growth(held)]
        print("  " + "  ".join(table[-1]), flush=True)
    print_table(table)
    if given.json:
        given.json.write_text(json.dumps(kept))
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
