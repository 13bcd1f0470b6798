"""A process that runs the application, kills itself at a named step if told to, and proves its views.

Called with JSON: the folder, the stores, and where to die (`step`, in a batch that had
records, after `after` batches of this life). Steps are those of the sink ("view NAME",
"records", "progress", "done") and, with a view's name before them, those inside a store's
commit ("per_second: ledger written"). On standard input it gets the ends of the log and
then proves every view, and when that closes it ends; on standard output it says what
happens, line by line.
"""

import faulthandler
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from stream_application import TOPIC, RunOptions, application  # noqa: E402

from headrace.app.running import Running, running  # noqa: E402
from headrace.app.sink import BatchReport  # noqa: E402
from headrace.app.verifying import verify_view  # noqa: E402
from headrace.views import steps  # noqa: E402


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


class Death:
    """Ends this process, as `kill -9` does, when the step comes round that it waits for."""

    def __init__(self, step: str | None, after: int) -> None:
        self._step = step
        self._batches_left = after
        self._view = ""

    def on_step(self, step: str) -> None:
        if step == "done":
            self._batches_left -= 1
        self._view = step.removeprefix("view ") if step.startswith("view ") else ""
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


def main(order: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    faulthandler.register(signal.SIGUSR1, all_threads=True)
    death = Death(order.get("step"), order.get("after", 1))
    steps.watch(death.in_store)
    asked: list[dict[int, int]] = []
    over = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            asked.append({int(each): end for each, end in json.loads(line).items()})
        over.set()

    threading.Thread(target=listen, daemon=True).start()

    def on_batch(report: BatchReport) -> None:
        if report.records:
            say(batch=report.batch_id, records=report.records)

    began = time.monotonic()
    with running(
        application(order["stores"]),
        RunOptions(data=Path(order["data"])),
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
        while not asked:
            assert not started.wait(0.3), "the query ended"
        prove(started, SparkSession.getActiveSession(), asked[0])
        say(proved=True)
        over.wait()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
