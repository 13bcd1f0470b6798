"""Rows per second that each store of views takes and gives back, beside the bare thing.

Rows have five columns: a text key, two window bounds, a count and a sum. They come in
batches, first as new rows, then as corrections of the same rows. The peers write the
same rows of the same table with nothing around them: `executemany` with the same
primary key, `COPY`, `pyarrow.parquet`, a plain producer; no ledger, no changes of
existing rows, nothing told apart. PostgreSQL and the log run on this machine.

    python benchmarks/stores.py [--rows 300000] [--batch 50000] [--only sqlite]
"""

import argparse
import functools
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.client import Connection, producer
from headrace.testing.broker import BrokerProcess
from headrace.testing.kafka import PeerUnavailable
from headrace.testing.postgres import PostgresServer
from headrace.views import ChangeKind, ViewBatch, ViewSchema, open_store
from headrace.views.formats import dumps, rows_to_json
from headrace.views.sql.postgres_values import to_csv
from headrace.views.sql.sqlite_values import encode

INSTANT = pa.timestamp("us", "UTC")
SCHEMA = ViewSchema(
    "minutes",
    ("user", "window_start"),
    pa.schema(
        [
            ("user", pa.string()),
            ("window_start", INSTANT),
            ("window_end", INSTANT),
            ("events", pa.int64()),
            ("total", pa.float64()),
        ]
    ),
)
STRUCT = pa.struct(list(SCHEMA.columns))
KEYS = 10_000
MINUTE = 60_000_000


def rows(count: int, seed: int) -> pa.Table:
    """So many results of 10,000 users, minute after minute."""
    chance, number = np.random.default_rng(seed), np.arange(count)
    start = 1_700_000_000_000_000 // MINUTE * MINUTE + number // KEYS * MINUTE
    users = pa.array([f"user-{each}" for each in range(KEYS)]).take(pa.array(chance.permutation(KEYS)))
    columns = [
        users.take(pa.array(number % KEYS)),
        pa.array(start, INSTANT),
        pa.array(start + MINUTE, INSTANT),
        pa.array(chance.integers(1, 100, count)),
        pa.array(chance.random(count)),
    ]
    return pa.table(columns, schema=SCHEMA.columns)


def batches(content: pa.Table, size: int, before: pa.Table | None) -> list[pa.Table]:
    """Changes as the operators make them."""
    made = []
    for begin in range(0, content.num_rows, size):
        part = content.slice(begin, size)
        old = pa.nulls(part.num_rows, STRUCT) if before is None else _structs(before.slice(begin, size))
        kind = ChangeKind.CLOSE if before is None else ChangeKind.CORRECTION
        kinds = pa.array(np.full(part.num_rows, int(kind), np.int8))
        keys = {name: part[name] for name in SCHEMA.key}
        made.append(pa.table({**keys, "before": old, "after": _structs(part), "kind": kinds}))
    return made


def _structs(part: pa.Table) -> pa.Array:
    columns = [each.combine_chunks() for each in part.columns]
    return pa.StructArray.from_arrays(columns, fields=list(part.schema))


@dataclass(frozen=True)
class Rate:
    """Rows per second, and per second of this process's own processor time."""

    wall: float
    own: float


def rate(count: int, act: Callable[[], object]) -> Rate:
    began, used = time.perf_counter(), time.process_time()
    act()
    return Rate(count / (time.perf_counter() - began), count / (time.process_time() - used))


def measure_store(url: str, first: list[pa.Table], second: list[pa.Table]) -> dict[str, Rate]:
    """New rows, corrections of all of them, and reading all in order."""
    store = open_store(url)
    store.prepare(SCHEMA)
    store.begin(SCHEMA.name, "q")
    count = sum(each.num_rows for each in first)

    def apply(changes: list[pa.Table], start: int) -> None:
        for number, each in enumerate(changes, start):
            assert store.apply(SCHEMA.name, ViewBatch("q", number, each))

    found = {
        "insert": rate(count, lambda: apply(first, 0)),
        "correct": rate(count, lambda: apply(second, len(first))),
        "read": rate(count, lambda: store.read(SCHEMA.name)),
    }
    assert store.read(SCHEMA.name).num_rows == count
    store.close()
    return found


# --- the bare things ------------------------------------------------------------------------------


def bare_sqlite(folder: Path, parts: list[pa.Table]) -> None:
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE t (a TEXT, b TEXT, c TEXT, d BIGINT, e, PRIMARY KEY (a, b))")
    for part in parts:
        connection.execute("BEGIN")
        values = zip(*(encode(column) for column in part.columns), strict=True)
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", values)
        connection.execute("COMMIT")
    connection.close()


def bare_parquet(folder: Path, parts: list[pa.Table]) -> None:
    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"bare-{number}.parquet", compression="zstd", compression_level=1)


def bare_postgres(url: str, parts: list[pa.Table]) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE bare (a text, b timestamptz, c timestamptz, d bigint, e float8, PRIMARY KEY (a, b))"
        )
        for part in parts:
            with connection.cursor() as cursor, cursor.copy("COPY bare FROM STDIN (FORMAT csv)") as copy:
                copy.write(to_csv(part))
            connection.commit()


def bare_topic(log: Connection, parts: list[pa.Table]) -> None:
    sender = producer(log, enable_idempotence=True, compression_type="lz4", linger_ms=5)
    for part in parts:
        for each in rows_to_json(part):
            while True:
                try:
                    sender.produce("bare", dumps(each), each["user"])
                except BufferError:
                    sender.poll(0.1)
                else:
                    break
            sender.poll(0)
        sender.flush(60)


# --- all of them ----------------------------------------------------------------------------------


Bare = Callable[[list[pa.Table]], object]


def stores(ending: ExitStack, folder: Path, only: str | None) -> Iterator[tuple[str, str, str, Bare]]:
    """Name, URL, the bare thing's name, and the bare thing."""
    if only in (None, "sqlite"):
        yield "sqlite", f"sqlite:///{folder}/v.db", "executemany", lambda parts: bare_sqlite(folder, parts)
    if only in (None, "parquet"):
        yield "parquet", f"parquet:///{folder}/v", "pyarrow", lambda parts: bare_parquet(folder, parts)
    if only in (None, "topic"):
        broker = ending.enter_context(BrokerProcess(folder / "log"))
        log = Connection(bootstrap_servers=broker.bootstrap)
        url = f"topic://v?bootstrap={broker.bootstrap}"
        yield "topic", url, "producer", lambda parts: bare_topic(log, parts)
    if only in (None, "postgresql"):
        try:
            server = ending.enter_context(PostgresServer())
        except PeerUnavailable as reason:
            print(f"postgresql: skipped: {reason}")
            return
        url = server.url()
        yield "postgresql", url, "COPY", lambda parts: bare_postgres(url, parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--only", help="one store")
    options = parser.parse_args()
    content = rows(options.rows, 1)
    first, second = batches(content, options.batch, None), batches(content, options.batch, content)
    parts = [content.slice(begin, options.batch) for begin in range(0, options.rows, options.batch)]
    load = os.getloadavg()[0]
    print(f"{options.rows:,} rows in batches of {options.batch:,}; load of this machine before: {load:.1f}")
    print("rows per second, and in brackets per second of this process's own processor time")
    print(f"{'':<11}{'insert':>21}{'correct':>21}{'read':>21}{'bare':>21}  insert / bare (own time)")
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory()))
        for name, url, peer, bare in stores(ending, folder, options.only):
            plain = rate(options.rows, functools.partial(bare, parts))
            found = {**measure_store(url, first, second), "bare": plain}
            figures = "".join(f"{each.wall:>10,.0f} ({each.own:>8,.0f})" for each in found.values())
            print(f"{name:<11}{figures}  {found['insert'].own / plain.own:.2f} of {peer}", flush=True)


if __name__ == "__main__":
    main()
