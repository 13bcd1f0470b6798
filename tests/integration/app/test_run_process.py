"""`headrace run` in a process of its own: what it takes, and how it ends."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from app_runs import event, headrace_run, new_topic, send

from headrace.client import Connection

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("drivers")]


def descendants(pid):
    return [each.pid for each in psutil.Process(pid).children(recursive=True)]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def messages_until(said, beginning):
    """What a run says, up to the message that begins so."""
    for line in said:
        yield (message := line.get("message", ""))
        if message.startswith(beginning):
            return
    raise AssertionError(f"it ended before it said {beginning!r}")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_run_keeps_to_its_limit_and_a_signal_ends_it_and_all_its_processes(tmp_path, number):
    topic = new_topic()
    process = headrace_run(tmp_path, topic, "--json", "--max-records-per-batch", "20")
    assert process.stdout is not None
    said = map(json.loads, process.stdout)
    try:
        (bootstrap,) = [
            each.split()[1] for each in messages_until(said, "running") if each.startswith("log:")
        ]
        send(Connection(bootstrap_servers=bootstrap), topic, [event(second) for second in range(60)])
        taken: list[int] = []
        while sum(taken) < 60:
            taken.append(next(said).get("records", 0))
        assert max(taken) <= 20
        family = descendants(process.pid)
        assert len(family) >= 2, "the log and the JVM"
        for pid in (process.pid, *family):  # to all of them at once, as systemd does
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0 and not err, err
        assert json.loads(out.splitlines()[-1]) == {"message": "stopped"}
    finally:
        process.kill()
    deadline = time.monotonic() + 60
    while left := [pid for pid in family if is_alive(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)  # a process that is not our child can only be looked at
