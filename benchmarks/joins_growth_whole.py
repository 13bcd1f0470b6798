"""Claim: a change costs an application the same, within 20 %, while its tables grow to 5,000,000 rows.

    python benchmarks/joins_growth_whole.py [--sizes 100000 1000000 5000000] [--changes 600000]

The large table of `memory.py`: orders, a tenth as many customers, joined by a foreign key and
grouped, on a log of its own. Behind a table of each size so many orders and customers (one in twenty)
change, in micro-batches of 200,000; printed is the processor time of the application's whole
process tree for each change: Python, Spark's JVM, its workers. `joins_growth.py` has the operators alone.
"""

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from bulk_topics import Ints, Rows, append, blocks_of, make_topics
from measure import print_table, processor_s
from memory import application, read
from memory_topics import CUSTOMER_KEY, ORDER_KEY, PARTITIONS, START_MS, TEMPLATES

from headrace.testing.broker import BrokerProcess

BAR = 1.2
BATCH = 200_000
WARM_UP = 20_000


class Shop:
    """Writes orders and customers, first all of them, then changes."""

    def __init__(self, bootstrap: str, orders: int) -> None:
        self._bootstrap = bootstrap
        self._orders, self._customers = orders, orders // 10
        self._chance = np.random.default_rng(1)
        self._blocks = count()
        make_topics(bootstrap, dict.fromkeys(("orders", "customers"), PARTITIONS))
        self.written = 0

    def fill(self) -> None:
        self._write(blocks_of(self._orders), blocks_of(self._customers))

    def change(self, rows: int) -> None:
        few = rows // 20
        self._write(
            (self._chance.integers(0, self._orders, len(each)) for each in blocks_of(rows - few)),
            (self._chance.integers(0, self._customers, len(each)) for each in blocks_of(few)),
        )

    def _write(self, orders: Iterator[Ints], customers: Iterator[Ints]) -> None:
        written = {
            "customers": (CUSTOMER_KEY, (self._block(each, 50) for each in customers)),
            "orders": (ORDER_KEY, (self._block(each, self._customers, 1000) for each in orders)),
        }
        for topic, (key, rows) in written.items():
            self.written += append(self._bootstrap, topic, TEMPLATES[topic], rows, key=key, ends={})

    def _block(self, numbers: Ints, *ranges: int) -> Rows:
        """New rows of these numbers, their columns drawn from ranges."""
        at = START_MS + next(self._blocks) * 1000 + np.zeros(len(numbers), np.int64)
        drawn = [self._chance.integers(0, most, len(numbers)) for most in ranges]
        return Rows([numbers, *drawn, at], at, key=numbers)


def microseconds(orders: int, changes: int) -> float:
    """What a change costs with so many orders."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-growth-") as folder,
        BrokerProcess(Path(folder) / "log") as broker,
    ):
        shop = Shop(broker.bootstrap, orders)
        shop.fill()
        with application("large table", broker.bootstrap, Path(folder) / "data", str(BATCH)) as side:
            shop.change(WARM_UP)
            wait_read(side, shop.written)
            before = processor_s(side.pid)
            shop.change(changes)
            wait_read(side, shop.written)
            spent = processor_s(side.pid) - before
            side.stdin.close()
            read(side)
    return spent / changes * 1e6


def wait_read(side: Any, records: int) -> None:
    side.stdin.write(f"{records}\n")
    side.stdin.flush()
    read(side)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000, 5_000_000])
    parser.add_argument("--changes", type=int, default=600_000)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends what was started
    print(f"{given.changes:,} changes, load {os.getloadavg()[0]:.1f}")
    table = [("rows", "µs/change", "of the smallest", "")]
    first = 0.0
    for size in given.sizes:
        cost = microseconds(size, given.changes)
        first = first or cost
        verdict = "pass" if cost <= BAR * first else "MISS"
        table.append((f"{size:,}", f"{cost:.1f}", f"{cost / first:.2f}", f"≤ {BAR} {verdict}"))
        print(*table[-1], sep="\t", flush=True)
    print_table(table)


if __name__ == "__main__":
    main()
