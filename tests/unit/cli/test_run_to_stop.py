"""Work that a signal ends: in order if it can be, and without it if it waits for others for too long."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from headrace.cli.run_to_stop import run_to_stop
from headrace.errors import RequestError

STUCK = """
import os, signal, threading
from headrace.cli.run_to_stop import run_to_stop

def work():
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()

run_to_stop(work, lambda: print("asked"), lambda: print("stopped"), grace_s=0)
print("this process goes on")
"""


def test_work_that_ends_by_itself_is_followed_by_the_farewell():
    done = []
    run_to_stop(lambda: done.append("work"), lambda: done.append("stop"), lambda: done.append("farewell"))
    assert done == ["work", "farewell"]


def test_a_signal_stops_the_work():
    stopping, done = threading.Event(), []

    def work():
        os.kill(os.getpid(), signal.SIGTERM)
        stopping.wait()

    before = signal.getsignal(signal.SIGTERM)
    run_to_stop(work, stopping.set, lambda: done.append("farewell"))
    assert done == ["farewell"] and signal.getsignal(signal.SIGTERM) is before


def test_a_failure_is_raised_and_nothing_said():
    def work():
        raise RequestError("no such thing")

    with pytest.raises(RequestError, match="no such thing"):
        run_to_stop(work, lambda: None, lambda: pytest.fail("farewell"))


def test_work_that_does_not_stop_is_left_behind():
    ended = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "asked\nstopped\n", "")
