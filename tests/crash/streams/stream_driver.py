"""A process that runs the application, kills itself at a named step if told to, and proves its views.

Called with JSON: the folder, the stores, the module of the application, where orders for the
workers are put (`deaths`), and who writes the results (`sinks`).
On standard input it is told, line by line, to die (`{"die": STEP, "after": BATCHES}`) or to
prove every view (`{"prove": ENDS}`, with the ends of the log's topics); when that closes it ends. Steps
are those of the sink ("view NAME", "records", "progress", "done"), with a view's name before
them those inside a store's commit ("per_second: ledger written"), and those in a worker
("state written", or "task: ledger written" where tasks write). On standard output it says what happens.
"""

import faulthandler
import importlib
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from stream_worker_daemon import DEATHS, order_death  # noqa: E402

from headrace import crash_points  # noqa: E402
from headrace.app.options import RunOptions  # noqa: E402
from headrace.app.query.checkpoint.manifest import Manifest  # noqa: E402
from headrace.app.query.places import graph_folder  # noqa: E402
from headrace.app.run.runner import Running, running  # noqa: E402
from headrace.app.status.batch_report import BatchReport  # noqa: E402
from headrace.app.verify.recompute import Verdict, verify_graph, verify_view  # noqa: E402
from headrace.crash_points import WORKER_POINTS  # noqa: E402
from headrace.streams import local_spark  # noqa: E402

IN_TASK = "task: "

_one_at_a_time = threading.Lock()  # each query reports from a thread of its own


def say(**fields: Any) -> None:
    with _one_at_a_time:
        print(json.dumps(fields), flush=True)


class Death:
    """Ends this process, as `kill -9` does, when the step comes round that it waits for.

    At a step of the workers, one of them ends this process and itself.
    """

    def __init__(self, deaths: Path) -> None:
        self._deaths = deaths
        self._step = ""
        self._batches_left = 0
        self._here = threading.local()  # views of several queries are written at the same time

    def wait_for(self, step: str, after: int) -> None:
        """From any thread: at this step, once that many batches are done."""
        self._batches_left = after
        self._step = step

    def on_step(self, step: str) -> None:
        if step == "done":
            self._batches_left -= 1
        self._here.view = step.removeprefix("view ") if step.startswith("view ") else ""
        in_worker = self._step in WORKER_POINTS or self._step.startswith(IN_TASK)
        if in_worker and self._batches_left <= 0:
            order_death(self._deaths, self._step.removeprefix(IN_TASK), with_pid=os.getpid())
            self._step = ""  # once: an order left over would be for whoever has this number then
        self._reached(step)

    def in_store(self, step: str) -> None:
        if view := getattr(self._here, "view", ""):
            self._reached(f"{view}: {step}")

    def _reached(self, step: str) -> None:
        if step == self._step and self._batches_left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def prove(started: Running, spark: Any, ends: dict[str, dict[int, int]]) -> None:
    """Waits until every view reflects the whole log, then recomputes each."""
    topics = topics_of_views(started)
    while any(
        started.stores[name].reflected(name).offsets != {topic: ends[topic] for topic in read}
        for name, read in topics.items()
    ):
        assert not started.wait(0.3), "the query ended"
    for verdict in verdicts(started, spark):
        say(
            view=verdict.view,
            rows=verdict.rows,
            failure=verdict.failure,
            differences=[[each.key, each.served, each.recomputed] for each in verdict.differences[:5]],
            counters=dict(verdict.reflected.counters),
            inputs={name: dict(counts) for name, counts in verdict.reflected.inputs.items()},
        )


def topics_of_views(started: Running) -> dict[str, set[str]]:
    """The topics that each view reads."""
    found = {view.view.name: {each.name} for each in started.plan.streams for view in each.views}
    for flow in started.plan.graphs:
        found[flow.view.name] = {each.spec.topic for each in flow.graph.sources}
    return {name: topics for name, topics in found.items() if name in started.stores}


def verdicts(started: Running, spark: Any) -> Iterator[Verdict]:
    for planned in started.plan.streams:
        for number, view in enumerate(planned.views):
            if view.view.name in started.stores:
                store = started.stores[view.view.name]
                yield verify_view(spark, planned, number, store, started.connection)
    for flow in started.plan.graphs:
        manifest = Manifest.read(graph_folder(started.options.data, flow.view.name))
        store = started.stores[flow.view.name]
        yield verify_graph(spark, flow, store, started.connection, manifest=manifest)


def spark_with_mortal_workers(deaths: Path) -> Any:
    """A Spark as `running` starts it, whose workers look for orders in `deaths`."""
    os.environ[DEATHS] = str(deaths)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(":")
    return local_spark("crash", settings={"spark.python.daemon.module": "stream_worker_daemon"})


def main(order: dict[str, Any]) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    deaths = Path(order["deaths"])
    death = Death(deaths)
    crash_points.watch(death.in_store)
    asked: queue.SimpleQueue[dict[str, dict[int, int]]] = queue.SimpleQueue()
    over = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            told = json.loads(line)
            if "die" in told:
                death.wait_for(told["die"], told["after"])
            else:
                asked.put(
                    {
                        topic: {int(each): end for each, end in ends.items()}
                        for topic, ends in told["prove"].items()
                    }
                )
        over.set()

    threading.Thread(target=listen, daemon=True).start()

    def on_batch(report: BatchReport) -> None:
        if report.records:
            say(batch=report.batch_id, records=report.records)

    began = time.monotonic()
    spark = spark_with_mortal_workers(deaths)
    with running(
        importlib.import_module(order["application"]).application(order["stores"]),
        # Nearly everything goes by files.
        RunOptions(data=Path(order["data"]), spill_bytes=64, sinks=order["sinks"]),
        on_batch=on_batch,
        on_message=lambda message: say(message=message),
        on_step=death.on_step,
    ) as started:
        assert started.log is not None
        say(
            bootstrap=started.connection.bootstrap_servers,
            broker=started.log.pid,
            seconds=time.monotonic() - began,
        )
        while asked.empty():
            assert not started.wait(0.3), "the query ended"
        prove(started, spark, asked.get())
        say(proved=True)
        over.wait()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
