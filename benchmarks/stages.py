"""Claim: two chained stages cost at most 1.4 times one in freshness, at the median.

    python benchmarks/stages.py [--rate 2000] [--seconds 20] [--warmup 15] [--rounds 2]

Events are appended at a steady rate; a view without windows follows them, kept in SQLite. With
one stage it groups by user; with two, what comes of that is grouped again by page, behind a
second shuffle of the same query. Both run in turns on a log of their own. Printed is the time
from the call that appends an event to the commit that shows it, after the warm-up.
"""

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path

import numpy as np
from freshness import HERE, Times, run
from measure import print_table

from headrace.testing.broker import BrokerProcess

BAR = 1.4


def measured(stages: int, given: argparse.Namespace) -> Times:
    with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder)) as broker:
        command = [sys.executable, str(HERE / "stages_ours.py"), str(stages)]
        return run(command, dict(os.environ), broker.bootstrap, given)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--warmup", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what was started
    print(f"{given.rate:,} events/s, {given.rounds} rounds in turn, load {os.getloadavg()[0]:.1f}")
    found: dict[int, list[Times]] = {1: [], 2: []}
    for _ in range(given.rounds):
        for stages, times in found.items():
            times.append(measured(stages, given))
    rows = {
        stages: [float(each) for each in np.percentile(np.concatenate(times), [50, 99, 100])]
        for stages, times in found.items()
    }
    titles = ("stages", "p50 ms", "p99 ms", "worst ms")
    print_table([titles, *[(str(name), *[f"{each:,.0f}" for each in row]) for name, row in rows.items()]])
    ratio = rows[2][0] / rows[1][0]
    print(f"p50: two / one {ratio:.2f}  ≤ {BAR} {'pass' if ratio <= BAR else 'MISS'}")


if __name__ == "__main__":
    main()
