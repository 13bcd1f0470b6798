"""A small application on a topic of its own, and what tests do with it."""

import contextlib
import inspect
import json
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from headrace import App, agg, tumbling
from headrace.app.options import RunOptions
from headrace.app.query.sinks.sink import ignore
from headrace.app.run.runner import Running, running
from headrace.app.status.batch_report import BatchReport
from headrace.app.verify.recompute import verify_view
from headrace.client import EARLIEST, LATEST, Connection, RawFetcher, producer
from headrace.records import decode_columns
from headrace.views import open_store

TIMEOUT_S = 300
# An hour ago, on a full minute: events are neither ahead of their records nor in a window of now.
BASE_MS = (int(time.time()) // 60 - 60) * 60_000


def with_restarts(rounds: list[tuple[list[Any], list[Any]]], restarts: int) -> list[tuple[list[Any], ...]]:
    """What is written to two topics before each start; for one restart, all but the first at once."""
    if restarts == len(rounds) - 1:
        return list(rounds)
    later = tuple([row for batches in rounds[1:] for row in batches[topic]] for topic in (0, 1))
    return [rounds[0], later]


def new_topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def spread() -> Any:
    """A user's own aggregate: how far the amounts are apart.

    Its class is made in a function, so that Spark ships it by value: workers cannot import this file.
    """

    class Spread:
        columns = ("amount",)
        functions = ("min", "max")

        def state_types(self, inputs):
            return [inputs[0], inputs[0]]

        def result_type(self, inputs):
            return inputs[0]

        def partial(self, inputs, groups):
            return [groups.aggregate(inputs[0], function) for function in self.functions]

        def merge(self, states, groups):
            return [groups.aggregate(*each) for each in zip(states, self.functions, strict=True)]

        def finish(self, states):
            return pc.subtract(states[1], states[0])

    return agg.custom(Spread())


def counting(
    topic: str,
    *,
    store: str,
    window: str = "10 seconds",
    partitions: int = 2,
    copies: str | None = None,
    **stream: Any,
) -> App:
    """One view: events, their sum and their spread, per place and window; and a topic with a copy of each."""
    app = App(f"app-{topic}", store=store)
    events = app.stream(
        topic,
        schema="place string, amount double, at long",
        **{"event_time": "at", "lateness": "1 second", "partitions": partitions, **stream},
    )

    @app.view
    def counts():
        return events.window(tumbling(window), by="place").agg(
            n=agg.count(), total=agg.sum("amount"), spread=spread()
        )

    if copies is not None:
        app.topic(copies, key="place")(lambda: events)
    return app


def event(second: float, place: str = "here", amount: float = 0.1) -> dict[str, Any]:
    return {"place": place, "amount": amount, "at": BASE_MS + round(second * 1000)}


def traffic(seed: int, count: int = 200, first: float = 0, until: float = 1000) -> list[Any]:
    """In time, late and malformed; the last closes all windows before it."""
    chance = random.Random(seed)
    print("seed", seed)
    values: list[Any] = []
    for number in range(count):
        second = first + number / 4 - chance.choice((0, 0.5, 0.9, 8, 30))
        value = event(second, chance.choice(("here", "there", "elsewhere")), chance.uniform(-1, 1))
        values.append(value if chance.random() > 0.03 else b"{no JSON")
    return [*values, event(until)]


def send(log: Connection, topic: str, values: list[Any], partition: int = 0, **fields: Any) -> None:
    """In order, all acknowledged; what is not bytes is sent as JSON."""
    client = producer(log)
    for value in values:
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        client.produce(topic, raw, partition=partition, **fields)
    assert client.flush(TIMEOUT_S) == 0


def options(log: Connection, data: Path, **fields: Any) -> RunOptions:
    return RunOptions(data=data, bootstrap=log.bootstrap_servers, **fields)


def catch_up(app: App, log: Connection, data: Path, **fields: Any) -> None:
    """Runs the application to the end of the log."""
    with running(app, options(log, data, until_caught_up=True, **fields)) as started:
        assert started.wait(TIMEOUT_S), "it has not caught up"


@contextlib.contextmanager
def kept_running(
    app: App,
    log: Connection,
    data: Path,
    on_batch: Callable[[BatchReport], None] = ignore,
    on_message: Callable[[str], None] = ignore,
    **fields: Any,
) -> Iterator[Running]:
    with running(app, options(log, data, **fields), on_batch=on_batch, on_message=on_message) as started:
        yield started


def wait_until(started: Running, condition: Callable[[], Any]) -> Any:
    """What the condition gives once it is true; the queries are watched over meanwhile."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        assert not started.wait(0.05), "the query ended"
    return found


def log_ends(log: Connection, topic: str) -> dict[int, int]:
    with RawFetcher(log) as fetcher:
        return fetcher.offsets(topic, LATEST)


def read(log: Connection, topic: str) -> list[dict[str, Any]]:
    """All records of a topic, partition by partition."""
    with RawFetcher(log) as fetcher:
        starts, ends = fetcher.offsets(topic, EARLIEST), fetcher.offsets(topic, LATEST)
        return [
            each
            for partition, start in starts.items()
            for part in fetcher.fetch(topic, partition, start, ends[partition])
            for each in decode_columns(part, start_offset=start).to_pylist()
        ]


def headers_of(record: dict[str, Any]) -> dict[str, bytes]:
    return {each["key"]: each["value"] for each in record["headers"]}


def rows(store: str, view: str = "counts") -> list[dict[str, Any]]:
    with contextlib.closing(open_store(store)) as opened:
        return opened.read(view).to_pylist()


def seconds_of(store: str, view: str = "counts") -> dict[tuple[str, float], int]:
    """The number of events by place and second of the window's start."""
    return {
        (row["place"], row["window_start"].timestamp() - BASE_MS / 1000): row["n"]
        for row in rows(store, view)
    }


def reflected(store: str, view: str = "counts") -> Any:
    with contextlib.closing(open_store(store)) as opened:
        return opened.reflected(view)


def require_equal(spark: Any, app: App, log: Connection, store: str) -> None:
    """The view equals its recomputation from the log, and its counters account for every record."""
    from headrace.app.plan.planner import plan_app

    planned = plan_app(app, spark).streams[0]
    with contextlib.closing(open_store(store)) as opened:
        verdict = verify_view(spark, planned, 0, opened, log)
    assert verdict.is_equal, verdict.differences[:3]
    read = verdict.reflected.offsets[planned.name]
    assert sum(verdict.reflected.counters.values()) == sum(read.values())


APPLICATION = """
import pyarrow.compute as pc

from headrace import App, agg, tumbling

{spread}

app = App("app-{topic}", store="{store}")
events = app.stream("{topic}", schema="place string, amount double, at long", event_time="at",
                    lateness="1 second", partitions=2)

@app.view
def counts():
    return events.window(tumbling("10 seconds"), by="place").agg(
        n=agg.count(), total=agg.sum("amount"), spread=spread()
    )
"""


def headrace_run(tmp_path: Path, topic: str, *arguments: str) -> "subprocess.Popen[str]":
    """`headrace run` of an application on this topic, which is that of `counting`."""
    file = tmp_path / "app.py"
    own = inspect.getsource(spread).replace(" -> Any", "")
    file.write_text(APPLICATION.format(topic=topic, store=f"sqlite:///{tmp_path}/views.db", spread=own))
    return subprocess.Popen(
        [sys.executable, "-m", "headrace", "run", str(file), "--data", str(tmp_path / "data"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
