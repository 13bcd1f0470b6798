"""A process that runs the application, kills itself at a named step if told to, and proves its views.

Called with JSON: the folder, the stores, and where orders for the workers are put (`deaths`).
On standard input it is told, line by line, to die (`{"die": STEP, "after": BATCHES}`) or to
prove every view (`{"prove": ENDS}`, with the ends of the log); when that closes it ends. Steps
are those of the sink ("view NAME", "records", "progress", "done"), with a view's name before
them those inside a store's commit ("per_second: ledger written"), and those in a worker
("state written"). On standard output it says what happens.
"""

import faulthandler
import json
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from stream_application import TOPIC, WORKER_STEPS, RunOptions, application  # noqa: E402
from stream_worker_daemon import DEATHS, order_death  # noqa: E402

from headrace import steps  # noqa: E402
from headrace.app.running import Running, running  # noqa: E402
from headrace.app.sink import BatchReport  # noqa: E402
from headrace.app.verifying import verify_view  # noqa: E402
from headrace.streams import local_spark  # noqa: E402


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


class Death:
    """Ends this process, as `kill -9` does, when the step comes round that it waits for.

    At a step of the workers, one of them ends this process and itself.
    """

    def __init__(self, deaths: Path) -> None:
        self._deaths = deaths
        self._step = ""
        self._batches_left = 0
        self._view = ""

    def wait_for(self, step: str, after: int) -> None:
        """From any thread: at this step, once that many batches are done."""
        self._batches_left = after
        self._step = step

    def on_step(self, step: str) -> None:
        if step == "done":
            self._batches_left -= 1
        self._view = step.removeprefix("view ") if step.startswith("view ") else ""
        if self._step in WORKER_STEPS and self._batches_left <= 0:
            order_death(self._deaths, self._step, with_pid=os.getpid())
            self._step = ""  # once: an order left over would be for whoever has this number then
        self._reached(step)

    def in_store(self, step: str) -> None:
        if self._view:
            self._reached(f"{self._view}: {step}")

    def _reached(self, step: str) -> None:
        if step == self._step and self._batches_left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def prove(started: Running, spark: Any, ends: dict[int, int]) -> None:
    """Waits until every view reflects the whole log, then recomputes each."""
    planned = started.plan.streams[0]
    while any(
        started.stores[view.view.name].reflected(view.view.name).offsets.get(TOPIC) != ends
        for view in planned.views
        if view.view.name in started.stores
    ):
        assert not started.wait(0.3), "the query ended"
    for number, view in enumerate(planned.views):
        name = view.view.name
        if name not in started.stores:
            continue
        verdict = verify_view(spark, planned, number, started.stores[name], started.connection)
        differences = [[each.key, each.served, each.recomputed] for each in verdict.differences[:5]]
        say(view=name, rows=verdict.rows, differences=differences, books=dict(verdict.reflected.books))


def spark_with_mortal_workers(deaths: Path) -> Any:
    """A Spark as `running` starts it, whose workers look for orders in `deaths`."""
    os.environ[DEATHS] = str(deaths)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(":")
    return local_spark("crash", settings={"spark.python.daemon.module": "stream_worker_daemon"})


def main(order: dict[str, Any]) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    deaths = Path(order["deaths"])
    death = Death(deaths)
    steps.watch(death.in_store)
    asked: queue.SimpleQueue[dict[int, int]] = queue.SimpleQueue()
    over = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            told = json.loads(line)
            if "die" in told:
                death.wait_for(told["die"], told["after"])
            else:
                asked.put({int(each): end for each, end in told["prove"].items()})
        over.set()

    threading.Thread(target=listen, daemon=True).start()

    def on_batch(report: BatchReport) -> None:
        if report.records:
            say(batch=report.batch_id, records=report.records)

    began = time.monotonic()
    spark = spark_with_mortal_workers(deaths)
    with running(
        application(order["stores"]),
        RunOptions(data=Path(order["data"]), parcel_bytes=64),  # nearly everything goes by files
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
