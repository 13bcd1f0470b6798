"""Headrace's side of `freshness.py`: one application with three views, in SQLite.

Prints a line when it runs, and, when its input ends, what was visible when: for every
batch the moment at which all three views had it, and the offsets it reached.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from headrace import App, agg, hopping, tumbling
from headrace.app.options import RunOptions
from headrace.app.run.runner import running
from headrace.app.status.batch_report import BatchReport


def clicks(topic: str) -> App:
    app = App("freshness")
    stream = app.stream(topic, schema="user string, amount long, at long, page string", event_time="at")
    sums = {"n": agg.count(), "total": agg.sum("amount")}

    @app.view
    def by_user() -> object:
        return stream.window(tumbling("1 minute"), by="user", emit="update").agg(**sums)

    @app.view
    def by_page() -> object:
        return stream.window(tumbling("10 seconds"), by="page", emit="update").agg(**sums)

    @app.view
    def lately() -> object:
        return stream.window(hopping("1 minute", every="10 seconds"), by="page", emit="update").agg(**sums)

    return app


def main() -> None:
    bootstrap, topic = sys.argv[1:]
    visible_at = [0.0]
    seen: list[tuple[str, float, dict[int, int]]] = []

    def step(name: str) -> None:
        if name == "records":  # all views have the batch
            visible_at[0] = time.time()

    def batch(report: BatchReport) -> None:
        seen.append(("all", visible_at[0], dict(report.following)))

    with tempfile.TemporaryDirectory(prefix="headrace-freshness-") as folder:
        options = RunOptions(data=Path(folder), bootstrap=bootstrap)
        with running(clicks(topic), options, on_batch=batch, on_step=step) as run:
            print(json.dumps({"ready": True}), flush=True)
            sys.stdin.read()
            progress = run.queries[topic].spark_query.recentProgress
            print(
                json.dumps({"seen": seen, "batches": [each["durationMs"] for each in progress]}), flush=True
            )


if __name__ == "__main__":
    main()
