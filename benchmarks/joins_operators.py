"""What a join costs per row, by kind of join and rows of state: rows a second on one core.

Batches of 100,000 rows, half of them of each input; time of the processor spent in `advance`
alone, deltas included. Nothing else: no Spark, no shuffle, no store.

    python benchmarks/joins_operators.py [--batches 20] [--state 100000 1000000] [--only "as of"]
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from headrace.streams.operators import AsOfJoin, StreamJoin, TableJoin

ROWS = 100_000  # in one batch, half of each input
STEP_US = 1_000_000  # of event time from batch to batch
START_US = 1_700_000_000_000_000
Batch = tuple[list[pa.Table | None], list[int]]


def stamped(columns: dict[str, object], times: np.ndarray, begin: int, weights: object = 1) -> pa.Table:
    rows = len(times)
    return pa.table(
        {
            **columns,
            "_partition": np.zeros(rows, np.int32),
            "_offset": np.arange(begin, begin + rows),
            "_event_time": times,
            "_watermark": np.full(rows, int(times.min()) - STEP_US),
            "_weight": np.broadcast_to(np.asarray(weights, np.int64), rows).copy(),
        }
    )


def names_of(keys: np.ndarray) -> pa.Array:
    return pa.array(np.char.add("user-", keys.astype("U8")))


def times_of(chance: np.random.Generator, batch: int, rows: int) -> np.ndarray:
    return START_US + batch * STEP_US + chance.integers(0, STEP_US, rows)


def streams(state: int, batches: int) -> Iterator[Batch]:
    """Each left row has about one partner; the bound is as long as makes that state."""
    chance, half = np.random.default_rng(1), ROWS // 2
    every = names_of(np.arange(state))
    for batch in range(batches):
        sides = []
        for side in ("left", "right"):
            keys = every.take(pa.array(chance.integers(0, len(every), half)))
            columns = {"key": keys, f"{side}_value": chance.random(half), f"{side}_count": np.arange(half)}
            sides.append(stamped(columns, times_of(chance, batch, half), batch * half))
        watermark = START_US + batch * STEP_US
        yield sides, [watermark, watermark]


def events_and_versions(state: int, batches: int) -> Iterator[Batch]:
    """A table of that many rows, then as many events as new versions."""
    chance, half = np.random.default_rng(1), ROWS // 2
    every = names_of(np.arange(state))

    def versions(numbers: np.ndarray, times: np.ndarray, begin: int) -> pa.Table:
        columns = {"key": every.take(pa.array(numbers)), "rate": chance.random(len(numbers))}
        return stamped({**columns, "_deleted": np.zeros(len(numbers), np.bool_)}, times, begin)

    yield [None, versions(np.arange(state), np.full(state, START_US - STEP_US), 0)], [START_US - STEP_US] * 2
    for batch in range(batches):
        keys = every.take(pa.array(chance.integers(0, state, half)))
        columns = {"key": keys, "amount": chance.random(half), "count": np.arange(half)}
        events = stamped(columns, times_of(chance, batch, half), batch * half)
        newer = versions(chance.integers(0, state, half), times_of(chance, batch, half), state + batch * half)
        watermark = START_US + batch * STEP_US
        yield [events, newer], [watermark, watermark]


def tables(state: int, batches: int) -> Iterator[Batch]:
    """Orders by customer, ten times as many orders; then updates of both, as -1 and +1."""
    chance = np.random.default_rng(1)
    users, orders = state // 11, state - state // 11
    names = names_of(np.arange(users))
    scores, sums = np.zeros(users), np.zeros(orders)
    owner = chance.integers(0, users, orders)

    def changes(columns: Callable[[], dict[str, object]], change: Callable[[], None]) -> pa.Table:
        old = pa.table(columns())
        change()
        table = pa.concat_tables([old, pa.table(columns())])
        weights = np.repeat([-1, 1], old.num_rows)
        return stamped(
            dict(zip(table.column_names, table.columns, strict=True)), np.zeros(len(weights)), 0, weights
        )

    def of_users(numbers: np.ndarray) -> dict[str, object]:
        return {"key": names.take(pa.array(numbers)), "score": scores[numbers]}

    def of_orders(numbers: np.ndarray) -> dict[str, object]:
        return {"order": numbers, "key": names.take(pa.array(owner[numbers])), "sum": sums[numbers]}

    everyone, everything = np.arange(users), np.arange(orders)
    yield (
        [
            stamped(of_users(everyone), np.zeros(users), 0),
            stamped(of_orders(everything), np.zeros(orders), 0),
        ],
        [0, 0],
    )
    for batch in range(batches):
        few = chance.choice(users, min(users, ROWS // 40), replace=False)
        many = chance.choice(orders, min(orders, ROWS // 2 - ROWS // 40), replace=False)
        yield (
            [
                changes(lambda few=few: of_users(few), lambda few=few, to=batch + 1: scores.put(few, to)),
                changes(
                    lambda many=many: of_orders(many), lambda many=many, to=batch + 1: sums.put(many, to)
                ),
            ],
            [0, 0],
        )


def kinds(state: int) -> dict[str, tuple[object, Callable[[int, int], Iterator[Batch]]]]:
    on = {"left_on": ("key",), "right_on": ("key",)}
    bound = STEP_US * (state // ROWS)  # half of a batch is of one side
    near = {**on, "before_us": bound, "after_us": bound}
    return {
        "stream inner": (StreamJoin(**near), streams),
        "stream full": (StreamJoin(**near, how="full"), streams),
        "stream full, correct": (
            StreamJoin(**near, how="full", late="correct", correct_for_us=STEP_US),
            streams,
        ),
        "as of": (AsOfJoin(**on, how="left", keep_us=STEP_US), events_and_versions),
        "as of, correct": (
            AsOfJoin(**on, how="left", late="correct", correct_for_us=STEP_US, keep_us=STEP_US),
            events_and_versions,
        ),
        "latest": (AsOfJoin(**on, how="left", mode="latest"), events_and_versions),
        "table inner": (TableJoin(**on), tables),
        "table full": (TableJoin(**on, how="full"), tables),
        "table anti": (TableJoin(**on, how="anti"), tables),
    }


def measured(operator, batches: Sequence[Batch], warm: int) -> tuple[float, int, int, int]:  # type: ignore[no-untyped-def]
    """Seconds, rows in and rows out, behind the batches that build up the state; and rows held."""
    schemas = [next(each[0][side].schema for each in batches if each[0][side] is not None) for side in (0, 1)]
    state, seconds, taken, given = operator.new_state(schemas), 0.0, 0, 0
    for number, (arrived, watermarks) in enumerate(batches):
        begin = time.process_time()
        step = state.advance(arrived, watermarks)
        if number >= warm:
            seconds += time.process_time() - begin
            taken += sum(table.num_rows for table in arrived if table is not None)
            given += step.changes.num_rows if step.changes is not None else 0
    return seconds, taken, given, state.row_count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--state", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    print(f"{arguments.batches} batches of {ROWS:,} rows, load {os.getloadavg()[0]:.1f}")
    print(f"{'join':22} {'state':>10} {'held':>10} {'rows/s':>12} {'µs/row':>8} {'out/in':>7}")
    for size in arguments.state:
        for name, (operator, source) in kinds(size).items():
            if arguments.only not in name:
                continue
            warm = size // ROWS + 2 if source is streams else 1
            batches = list(source(size, warm + arguments.batches - (source is not streams)))
            seconds, taken, given, held = measured(operator, batches, warm)
            print(
                f"{name:22} {size:10,} {held:10,} {taken / seconds:12,.0f} {seconds / taken * 1e6:8.3f} "
                f"{given / taken:7.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
