"""`python -m headrace.app.class_archive`: keeps Spark's classes, so that it starts in half the time.

Runs a small application for a batch on a Spark that writes down, as it exits, all classes it
had loaded (see `headrace.streams.class_archive`). Done once for a Python environment, in
about half a minute; some 170 MB. Where that is not possible, Spark starts as before.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headrace.app.application import App
from headrace.app.reports import BatchReport
from headrace.app.running import running
from headrace.app.starting import RunOptions, messages_to
from headrace.client import Connection, producer
from headrace.errors import HeadraceError, RetriableError
from headrace.java import find_java
from headrace.streams import local_spark
from headrace.streams.class_archive import archive_place
from headrace.streams.operators import agg, tumbling
from headrace.streams.session import java_options

__all__ = ["keep_classes"]

_EXIT_TIMEOUT_S = 300
_BATCH_TIMEOUT_S = 180
_RECORDS = 100


def keep_classes(place: Path) -> bool:
    """Writes the archive to `place`, whole or not at all; False if this Java leaves none."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        fresh = Path(folder, place.name)
        options = java_options(f"-XX:ArchiveClassesAtExit={fresh}", "-Xlog:disable")
        with messages_to(Path(folder, "messages")):
            spark = local_spark("classes", settings={"spark.driver.extraJavaOptions": options})
        _run_for_a_batch(Path(folder, "data"))
        java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        spark.stop()
        java.stdin.close()  # Java ends with its input, and writes the archive as it does
        try:
            java.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            java.kill()
            return False
        if not fresh.is_file():
            return False
        fresh.replace(place)
        return True


def _run_for_a_batch(data: Path) -> None:
    app = App("classes")
    numbers = app.stream("numbers", schema="number long, at timestamp", event_time="at", partitions=2)

    @app.view
    def per_minute() -> object:
        return numbers.window(tumbling("1 minute"), by="number").agg(n=agg.count())

    @app.view
    def some() -> object:
        return numbers.where("number > 10").select("number")

    reports: list[BatchReport] = []
    with running(app, RunOptions(data=data), on_batch=reports.append) as started:
        _send_numbers(started.connection)
        deadline = time.monotonic() + _BATCH_TIMEOUT_S
        while not any(report.records for report in reports):
            started.wait(0.2)
            if time.monotonic() > deadline:
                raise RetriableError(f"no batch within {_BATCH_TIMEOUT_S} s")


def _send_numbers(connection: Connection) -> None:
    sender = producer(connection)
    for number in range(_RECORDS):
        sender.produce("numbers", b'{"number":%d,"at":"2026-01-01T00:00:00Z"}' % number)
    sender.flush()


def main() -> int:
    """0 also where no archive can be made: nothing needs it."""
    try:
        place = archive_place(find_java())
        if place.is_file() or keep_classes(place):
            return 0
        reason = "this Java writes none"
    except (HeadraceError, OSError) as error:
        reason = str(error)
    sys.stderr.write(f"Spark's classes are not kept ({reason}); it will take a few seconds more to start\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
