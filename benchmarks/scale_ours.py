"""One run of `scale.py`: an application on a log, to the end of it; told and answering in JSON.

The processor time is that of this process, the driver's Python, from the end of the first micro-batch
to that of the last, for each record of those batches; also that of all it has started, Java among them, and
that of the executors' processes where they are named. The rate is that of the same batches.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from measure import processor_s
from peers import micro_batch_seconds

from headrace import App, agg, tumbling
from headrace.app.options import RunOptions
from headrace.app.run.runner import running
from headrace.app.status.batch_report import BatchReport


class Moment(NamedTuple):
    """The end of a batch: its records, the time, and the processor times until then."""

    records: int
    at_s: float
    driver_s: float
    all_s: float
    executors_s: float


def application(case: str, topic: str, store: str | None) -> App:
    app = App(f"scale-{topic}-{case}", store=store)
    clicks = app.stream(topic, schema="user string, amount long, at long", event_time="at")
    if case == "topic":
        app.topic(f"{app.name}-copies", key="user")(lambda: clicks)
    elif case == "rows":
        app.view(name="every")(lambda: clicks)
    else:  # nearly every click is a window of its own
        windows = clicks.window(tumbling("1 second"), by="user")
        app.view(name="counts")(lambda: windows.agg(n=agg.count(), total=agg.sum("amount")))
    return app


def answer(request: dict[str, Any]) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-scale-"))
    seen: list[Moment] = []

    def on_batch(report: BatchReport) -> None:
        if report.records:
            executors = sum(processor_s(pid) for pid in request["executors"])
            at = time.monotonic()
            seen.append(Moment(report.records, at, time.process_time(), processor_s(os.getpid()), executors))

    kept_in = {None: None, "parquet": f"parquet:///{folder / 'views'}"}
    store = kept_in.get(request["store"], request["store"])
    options = RunOptions(
        data=folder,
        bootstrap=request["bootstrap"],
        until_caught_up=True,
        max_records_per_batch=request["records"],
        sinks=request["sinks"],
        cores=request["cores"],
        master=request["master"],
        conf=request["conf"],
    )
    try:
        app = application(request["case"], request["topic"], store)
        with running(app, options, on_batch=on_batch) as run:
            run.wait()
            seconds = micro_batch_seconds(run.queries[request["topic"]].spark_query.recentProgress)
        records = sum(each.records for each in seen[1:])
        first, last = seen[0], seen[-1]
        return {
            "driver_us": (last.driver_s - first.driver_s) / records * 1e6,
            "all_us": (last.all_s - first.all_s) / records * 1e6,
            "executors_us": (last.executors_s - first.executors_s) / records * 1e6,
            "rate": records / (last.at_s - first.at_s),
            "seconds": seconds,
            "batches": len(seen),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    print(json.dumps(answer(json.loads(sys.argv[1]))))
