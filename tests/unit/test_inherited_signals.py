"""A process that a test starts hears Ctrl-C, also in a run of tests that does not."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

IN_THE_BACKGROUND = """
import os, signal, subprocess, sys

signal.signal({number}, signal.SIG_IGN)  # as a shell, or nohup, starts it
from tests.inherited_signals import give_children_defaults
{call}
os.kill(os.getpid(), {number})  # still ignored here
child = "import signal; print(signal.getsignal({number}) == signal.SIG_IGN)"
print(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout)
"""


def is_ignored_by_children(number, call):
    program = IN_THE_BACKGROUND.format(number=f"signal.{number}", call=call)
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip() == "True"


@pytest.mark.parametrize("number", ["SIGINT", "SIGQUIT", "SIGHUP"])
def test_what_a_run_of_tests_ignores_its_children_do_not(number):
    assert is_ignored_by_children(number, "pass")  # so it is without
    assert not is_ignored_by_children(number, "give_children_defaults()")


def test_this_run_gives_its_children_the_defaults():
    child = "import signal; print(signal.getsignal(signal.SIGINT) == signal.default_int_handler)"
    found = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, timeout=120)
    assert found.stdout.strip() == "True"
