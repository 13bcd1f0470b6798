"""A process that ends with the one that started it."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import signal, threading
from headrace.cli.end_of_input import stop_at_end_of_input
{}
stop_at_end_of_input(grace_s=0.1)
print("running", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize(
    ("before", "ends_with"),
    [("", -signal.SIGTERM), ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", 1)],
    ids=["in order", "for good when that takes too long"],
)
def test_a_process_ends_when_its_input_closes_and_not_before(before, ends_with):
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(before)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout.readline() == b"running\n"
    child.stdin.write(b"something to read\n")
    child.stdin.flush()
    assert child.poll() is None
    child.stdin.close()
    assert child.wait(timeout=120) == ends_with
    child.stdout.close()
