"""Spark's daemon of Python workers as we start it, with workers that die at a named step when ordered to.

An order is a file, named as the step, that holds the number of a process to kill with the
worker, or 0. Whoever takes it away obeys it: one worker dies of it, whichever is first.
"""

import os
import runpy
import signal
from pathlib import Path

from headrace import crash_points

__all__ = ["DEATHS", "order_death"]

DEATHS = "HEADRACE_TEST_DEATHS"  # the variable that names the folder of orders


def order_death(deaths: Path, step: str, *, with_pid: int = 0) -> Path:
    """Has the next worker that reaches the step die there; gone once that is so."""
    deaths.mkdir(exist_ok=True)
    beside = deaths / f"{step}.new"
    beside.write_text(str(with_pid))
    return beside.rename(deaths / step)


def obey(step: str) -> None:
    order = Path(os.environ[DEATHS]) / step
    try:
        with_pid = int(order.read_text())
        order.unlink()
    except FileNotFoundError:
        return
    if with_pid:
        os.kill(with_pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    crash_points.watch(obey)
    runpy.run_module("headrace.streams.spark.worker_daemon", run_name="__main__")
