"""What a windowed aggregation costs per event, by kind of window and number of keys.

Beside it, in the same run, a plain `pyarrow` group_by of the same rows by key and minute:
what a program without state, lateness or exact sums would pay.

    python benchmarks/operators.py [--events 1000000] [--only tumbling]
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.streams.operators import (
    Window,
    WindowOperator,
    agg,
    hopping,
    pack_buckets,
    session,
    sliding,
    tumbling,
    unpack,
)

SECOND = 1_000_000
ROWS = 100_000  # of one partition in one batch
BUCKETS = 4
KINDS: dict[str, Window] = {
    "tumbling": tumbling("1 minute"),
    "hopping": hopping("5 minutes", every="1 minute"),
    "session": session("5 seconds"),
    "sliding": sliding("2 seconds"),
}
AGGREGATES = (("events", agg.count()), ("total", agg.sum("amount")), ("highest", agg.max("amount")))


@dataclass
class Cost:
    """Seconds of processor time spent on each part."""

    partial: float = 0.0
    pack: float = 0.0
    advance: float = 0.0
    plain: float = 0.0
    changes: int = 0


def stream(events: int, keys: int, seed: int) -> list[pa.Table]:
    """Batches of one partition: 10,000 events per second of event time, up to two seconds out of order."""
    chance = np.random.default_rng(seed)
    names = pa.array([f"user-{number}" for number in range(keys)])
    tables = []
    for begin in range(0, events, ROWS):
        number = np.arange(begin, begin + ROWS)
        times = 1_700_000_000 * SECOND + number * 100 - chance.integers(0, 2 * SECOND, ROWS)
        amounts = np.round(chance.gamma(2.0, 40.0, ROWS), 2)
        columns = {
            "user": names.take(pa.array(chance.integers(0, keys, ROWS))),
            "amount": amounts,
            "_partition": pa.array(np.zeros(ROWS, np.int32)),
            "_offset": number,
            "_event_time": times,
            "_watermark": np.full(ROWS, 1_700_000_000 * SECOND + begin * 100 - 3 * SECOND),
        }
        tables.append(pa.table(columns))
    return tables


def timed(work: Callable[[], object]) -> tuple[float, object]:
    begin = time.process_time()
    done = work()
    return time.process_time() - begin, done


def run(window: Window, batches: list[pa.Table], **options: object) -> Cost:
    operator = WindowOperator(window, ("user",), AGGREGATES, **options)  # type: ignore[arg-type]
    states = [operator.new_state() for _ in range(BUCKETS)]
    cost = Cost()
    for rows in batches:
        seconds, partial = timed(lambda rows=rows: operator.partial(rows))
        cost.partial += seconds
        seconds, packed = timed(lambda partial=partial: pack_buckets(partial, ("user",), BUCKETS))
        cost.pack += seconds
        watermark = int(rows["_watermark"][0].as_py()) + ROWS * 100
        blobs = dict(packed)
        for bucket, state in enumerate(states):
            tables = [unpack(blobs[bucket])] if bucket in blobs else []
            seconds, step = timed(lambda state=state, tables=tables, at=watermark: state.advance(tables, at))
            cost.advance += seconds
            cost.changes += 0 if step.changes is None else step.changes.num_rows
        cost.plain += timed(lambda rows=rows: plain(rows))[0]
    return cost


def plain(rows: pa.Table) -> pa.Table:
    minutes = pa.array(rows["_event_time"].to_numpy() // (60 * SECOND))
    table = pa.table({"user": rows["user"], "minute": minutes, "amount": rows["amount"]})
    wanted = [("amount", "count"), ("amount", "sum"), ("amount", "max")]
    return table.group_by(["user", "minute"], use_threads=False).aggregate(wanted)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    print(
        f"{arguments.events:,} events, seed {arguments.seed}, load {load:.1f}; processor time, µs per event"
    )
    titles = ("keys", "partial", "pack", "advance", "sum", "plain", "changes")
    print(f"{'window':22} " + " ".join(f"{each:>9}" for each in titles))
    for keys in arguments.keys:
        batches = stream(arguments.events, keys, arguments.seed)
        run(KINDS["tumbling"], batches[:1])
        for name, window in KINDS.items():
            for emit in ("close", "update"):
                if arguments.only in f"{name} {emit}":
                    cost = run(window, batches, emit=emit)
                    parts = (cost.partial, cost.pack, cost.advance)
                    per_event = [each / arguments.events * 1e6 for each in (*parts, sum(parts), cost.plain)]
                    print(
                        f"{name + ' ' + emit:22} {keys:9,} "
                        + " ".join(f"{each:9.3f}" for each in per_event)
                        + f" {cost.changes:9,}"
                    )


if __name__ == "__main__":
    main()
