"""Processes that others wait for: what is set in the interpreter, seen in one of its own."""

import json
import subprocess
import sys

ASKED = """
import gc, json, sys
from headrace.interpreter import answer_promptly, freeze_start
answer_promptly()
freeze_start()
found = [sys.getswitchinterval(), gc.get_freeze_count(), gc.get_threshold()[0], len(gc.get_objects())]
print(json.dumps(found))
"""


def test_threads_take_turns_often_and_collections_leave_the_start_alone():
    run = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, check=True, timeout=60)
    interval_s, frozen, threshold, looked_at = json.loads(run.stdout)
    assert interval_s < 0.001
    assert threshold > 10_000
    assert frozen > 10 * looked_at
