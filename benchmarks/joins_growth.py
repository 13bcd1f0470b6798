"""Claim: what a change costs stays the same, within 20 %, while tables grow from 100,000 to 5,000,000 rows.

    python benchmarks/joins_growth.py [--sizes 100000 1000000 5000000] [--batch 10000] [--only "table"]

For each operator and size: a table of so many rows, and then batches of changes, until each row has
changed once or so, but at least 300,000 times, so that whatever is done now and then (merges of the
state, its snapshots) is done as often as it is in the long run. Processor time of one bucket, from
rows to changes, with its log on a disk: no Spark, no shuffle, no store. Sizes take turns, a batch
each, so that what disturbs the machine disturbs all of them. `--only` takes part of a name.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from joins_operators import names_of, stamped
from measure import print_table

from headrace.streams.engine import BucketFiles
from headrace.streams.engine.state.log import BucketCopy, append
from headrace.streams.operators import AsOfJoin, Distinct, Group, TableJoin, Upserts, agg

BAR = 1.2
FEWEST = 300_000
START_US = 1_700_000_000_000_000
STEP_US = 1_000_000

Arrived = list[pa.Table | None]
Changes = Callable[[int, int, np.random.Generator], Iterator[tuple[Arrived, list[int]]]]


def upserts(size: int, batch: int, chance: np.random.Generator) -> Iterator[tuple[Arrived, list[int]]]:
    """New rows for keys of a table."""

    def rows(keys: np.ndarray, offset: int) -> pa.Table:
        columns = {"key": names_of(keys), "amount": chance.random(len(keys))}
        gone = {"_deleted": np.zeros(len(keys), np.bool_)}
        return stamped({**columns, **gone}, np.full(len(keys), START_US + offset), offset)

    yield [rows(np.arange(size), 0)], [START_US]
    offset = size
    while True:
        yield [rows(chance.integers(0, size, batch), offset)], [START_US + offset]
        offset += batch


def orders_and_users(
    size: int, batch: int, chance: np.random.Generator
) -> Iterator[tuple[Arrived, list[int]]]:
    """Orders by user, ten times as many; one change in ten is a user's, whose ten orders it changes."""
    users = size // 11
    orders = size - users
    owner = chance.integers(0, users, orders)
    scores, sums = np.zeros(users), np.zeros(orders)

    def of_users(numbers: np.ndarray) -> dict[str, Any]:
        return {"key": names_of(numbers), "score": scores[numbers]}

    def of_orders(numbers: np.ndarray) -> dict[str, Any]:
        return {"order": numbers, "key": names_of(owner[numbers]), "sum": sums[numbers]}

    def changed(columns: Callable[[], dict[str, Any]], change: Callable[[], None]) -> pa.Table:
        old = pa.table(columns())
        change()
        table = pa.concat_tables([old, pa.table(columns())])
        weights = np.repeat([-1, 1], old.num_rows)
        own = dict(zip(table.column_names, table.columns, strict=True))
        return stamped(own, np.zeros(len(weights)), 0, weights)

    yield (
        [
            stamped(of_orders(np.arange(orders)), np.zeros(orders), 0),
            stamped(of_users(np.arange(users)), np.zeros(users), 0),
        ],
        [0, 0],
    )
    while True:
        few = np.unique(chance.integers(0, users, batch // 10))
        many = np.unique(chance.integers(0, orders, batch - batch // 10))
        news = chance.random()
        yield (
            [
                changed(lambda: of_orders(many), lambda: sums.put(many, news)),  # noqa: B023 - called at once
                changed(lambda: of_users(few), lambda: scores.put(few, news)),  # noqa: B023
            ],
            [0, 0],
        )


def grouped(size: int, batch: int, chance: np.random.Generator) -> Iterator[tuple[Arrived, list[int]]]:
    """Rows that go and come in as many groups as the table has rows."""

    def rows(keys: np.ndarray, weights: object = 1) -> pa.Table:
        columns = {"key": names_of(keys), "amount": np.ones(len(keys), np.int64)}
        return stamped(columns, np.zeros(len(keys)), 0, weights)

    yield [rows(np.arange(size))], [0]
    while True:
        keys = chance.integers(0, size, batch)
        yield [rows(keys, 1)], [0]


def as_of(size: int, batch: int, chance: np.random.Generator) -> Iterator[tuple[Arrived, list[int]]]:
    """Events for a table of that many rows; one row in ten is a new version."""

    def versions(keys: np.ndarray, times: np.ndarray, offset: int) -> pa.Table:
        columns = {"key": names_of(keys), "rate": chance.random(len(keys))}
        return stamped({**columns, "_deleted": np.zeros(len(keys), np.bool_)}, times, offset)

    def times(number: int, rows: int) -> np.ndarray:
        return START_US + number * STEP_US + chance.integers(0, STEP_US, rows)

    yield [None, versions(np.arange(size), np.full(size, START_US - STEP_US), 0)], [START_US - STEP_US] * 2
    number = 0
    while True:
        few = batch // 10
        keys = names_of(chance.integers(0, size, batch - few))
        events = stamped(
            {"key": keys, "amount": chance.random(len(keys))}, times(number, len(keys)), number * batch
        )
        newer = versions(chance.integers(0, size, few), times(number, few), size + number * batch)
        yield [events, newer], [START_US + number * STEP_US] * 2
        number += 1


def kinds() -> dict[str, tuple[Any, Changes]]:
    on = {"left_on": ("key",), "right_on": ("key",)}
    counted = Group(keys=("key",), aggregates=(("n", agg.count()), ("total", agg.sum("amount"))))
    return {
        "upserts": (Upserts(("key",)), upserts),
        "table left": (TableJoin(**on, how="left"), orders_and_users),
        "table anti": (TableJoin(**on, how="anti"), orders_and_users),
        "as of": (AsOfJoin(**on, how="left", keep_us=60 * STEP_US), as_of),
        "group": (counted, grouped),
        "distinct": (Distinct(("key",)), grouped),
    }


@dataclass(slots=True)
class Bucket:
    """One operator with a table of one size, and what its changes have cost so far."""

    operator: Any
    size: int
    batches: Iterator[tuple[Arrived, list[int]]]
    files: BucketFiles
    copy: BucketCopy = field(init=False)
    number: int = 0
    changes: int = 0
    seconds: float = 0.0
    snapshot_s: float = 0.0

    def build(self) -> None:
        arrived, watermarks = next(self.batches)
        schemas = [table.schema for table in next(self.batches)[0] if table is not None]
        self.copy = BucketCopy([self.operator.new_state(schemas)], 0)
        self._advance(arrived, watermarks)
        self.seconds = self.snapshot_s = 0.0
        self.changes = 0

    def step(self) -> None:
        self._advance(*next(self.batches))

    @property
    def is_done(self) -> bool:
        return self.changes >= max(FEWEST, self.size)

    def _advance(self, arrived: Arrived, watermarks: Sequence[int]) -> None:
        (state,) = self.copy.states
        rows = sum(each.num_rows for each in arrived if each is not None)
        begun = time.process_time()
        step = state.advance(arrived, watermarks)
        middle = time.process_time()
        append(self.files, self.copy, self.number, [step.delta])
        ended = time.process_time()
        self.seconds += ended - begun
        self.snapshot_s += ended - middle
        self.changes += rows
        self.number += 1


def measured(operator: Any, changes: Changes, sizes: Sequence[int], batch: int) -> list[Bucket]:
    with tempfile.TemporaryDirectory(prefix="headrace-growth-") as folder:
        buckets = [
            Bucket(
                operator,
                size,
                changes(size, batch, np.random.default_rng(1)),
                BucketFiles(Path(folder), number, "growth"),
            )
            for number, size in enumerate(sizes)
        ]
        for each in buckets:
            each.build()
        while not all(each.is_done for each in buckets):
            for each in buckets:
                if not each.is_done:
                    each.step()
        return buckets


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000, 5_000_000])
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    print(f"batches of {given.batch:,} changes, load {os.getloadavg()[0]:.1f}")
    table = [("operator", "rows", "changes", "µs/change", "of it the log", "of the smallest", "")]
    for name, (operator, changes) in kinds().items():
        if given.only not in name:
            continue
        buckets = measured(operator, changes, given.sizes, given.batch)
        first = buckets[0].seconds / buckets[0].changes
        for each in buckets:
            cost = each.seconds / each.changes
            cells = (f"{each.changes:,}", f"{cost * 1e6:.2f}", f"{each.snapshot_s / each.changes * 1e6:.2f}")
            verdict = "pass" if cost <= BAR * first else "MISS"
            table.append((name, f"{each.size:,}", *cells, f"{cost / first:.2f}", f"≤ {BAR} {verdict}"))
            print(*table[-1], sep="\t", flush=True)
    print_table(table)


if __name__ == "__main__":
    main()
