"""Headrace's side of `stages.py`: a view of one stage, or of two that are chained, in SQLite.

Prints a line when it runs, and, when its input ends, what was visible when: for every batch
the moment at which the view had it, and the offsets it reached.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from headrace import App, agg
from headrace.app.options import RunOptions
from headrace.app.run.runner import running
from headrace.app.status.batch_report import BatchReport


def clicks(topic: str, stages: int) -> App:
    """Users with the page they saw last; and, behind another shuffle, the users of each page."""
    app = App("stages")
    stream = app.stream(topic, schema="user string, amount long, at long, page string", event_time="at")
    users = stream.group_by("user").agg(n=agg.count(), total=agg.sum("amount"), page=agg.last("page"))

    @app.view
    def result() -> object:
        if stages == 1:
            return users
        return users.group_by("page").agg(users=agg.count(), n=agg.sum("n"), total=agg.sum("total"))

    return app


def main() -> None:
    stages, bootstrap, topic = int(sys.argv[1]), *sys.argv[2:]
    visible_at = [0.0]
    seen: list[tuple[str, float, dict[str, int]]] = []

    def step(name: str) -> None:
        if name == "records":  # the view has the batch
            visible_at[0] = time.time()

    def batch(report: BatchReport) -> None:
        reached = {str(place).rpartition("/")[2]: end for place, end in report.following.items()}
        seen.append(("result", visible_at[0], reached))

    with tempfile.TemporaryDirectory(prefix="headrace-stages-") as folder:
        options = RunOptions(data=Path(folder), bootstrap=bootstrap)
        with running(clicks(topic, stages), options, on_batch=batch, on_step=step) as run:
            print(json.dumps({"ready": True}), flush=True)
            sys.stdin.read()
            progress = run.queries["view result"].spark_query.recentProgress
            print(
                json.dumps({"seen": seen, "batches": [each["durationMs"] for each in progress]}), flush=True
            )


if __name__ == "__main__":
    main()
