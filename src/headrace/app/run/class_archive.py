"""`python -m headrace.app.run.class_archive`: archives Spark's classes, so that Spark starts faster.

Runs a small application for one batch on a Spark that, as it exits, writes all classes it has
loaded to an archive (see `headrace.streams.spark.class_archive`). Done once for a Python
environment, in about half a minute; some 170 MB. Where that is not possible, Spark starts as
before.

`make setup` does it. Where pip alone installed Headrace, the first `headrace run` that is
meant to last does it in the background, after its first batch (`sidecars.start_class_archiver`).
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from headrace.app.application import App
from headrace.app.options import RunOptions
from headrace.app.run.runner import running
from headrace.app.run.spark import messages_to
from headrace.app.status.batch_report import BatchReport
from headrace.client import Connection, producer
from headrace.errors import HeadraceError, RetriableError
from headrace.java import find_java
from headrace.streams import local_spark
from headrace.streams.operators import agg, tumbling
from headrace.streams.spark import archive_place, outdated_archives, warm_up

__all__ = ["archive_classes"]

_EXIT_TIMEOUT_S = 300
_BATCH_TIMEOUT_S = 180
_RECORDS = 100
_LOWEST_PRIORITY = 19
_UNFINISHED = "unfinished-"  # begins the name of a folder in which an archive is being made


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """False if another process is working in this folder. Removes what a process that was killed has left."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "spark-classes.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        for left in folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield True


def archive_classes(place: Path) -> bool:
    """Writes the archive to `place`, whole or not at all; False if this Java makes none."""
    with _alone(place.parent) as alone:
        return alone and (place.is_file() or _write_archive(place))


def _write_archive(place: Path) -> bool:
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=place.parent) as folder:
        fresh = Path(folder, place.name)
        options = f"-XX:ArchiveClassesAtExit={fresh} -Xlog:disable"
        with messages_to(Path(folder, "messages")):
            spark = local_spark("classes", settings={"spark.driver.extraJavaOptions": options})
        java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        try:
            for job in warm_up(spark):
                job.join()
            _run_for_a_batch(Path(folder, "data"))
            spark.stop()
            java.stdin.close()  # Java ends with its input, and writes the archive as it does
            java.wait(_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return False
        finally:
            java.kill()  # when told to stop, do not wait for an archive that nobody will use
        if not fresh.is_file():
            return False
        fresh.replace(place)
    for each in outdated_archives(place):
        each.unlink(missing_ok=True)
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


def _yield_to_others() -> None:
    """Runs at the lowest priority, and ends as soon as the parent process ends or asks for it.

    Where Linux shares the processors between sessions first, that is the priority of the session.
    """
    os.nice(_LOWEST_PRIORITY)
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_LOWEST_PRIORITY))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main(*arguments: str) -> int:
    """Exits with 0 also where no archive can be made: nothing depends on it."""
    if arguments == ("--background",):
        _yield_to_others()
    try:
        place = archive_place(find_java())
        if place.is_file() or archive_classes(place):
            return 0
        reason = "this Java makes none, or another process is making it"
    except (HeadraceError, OSError) as error:
        reason = str(error)
    sys.stderr.write(
        f"no archive of Spark's classes was made ({reason}); Spark will take a few seconds longer to start\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
