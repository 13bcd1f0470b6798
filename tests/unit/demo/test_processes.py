"""Supervised processes."""

import os
import signal
import sys
import threading

import psutil
import pytest

from headrace.demo.processes import SupervisedProcess, Supervisor
from headrace.errors import RequestError

SAYS_AND_STAYS = "print('{\"said\": 1}', flush=True); import sys; sys.stdin.read()"
# A grandchild that hears nothing and would live for ever.
WITH_GRANDCHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
print('{{"grandchild": %d}}' % child.pid, flush=True)
{SAYS_AND_STAYS}
"""


class Child:
    """A supervised process, and what it said."""

    def __init__(self, tmp_path, program, **options):
        self.lines = []
        self.heard = threading.Condition()
        self.process = SupervisedProcess(
            "the child",
            [sys.executable, "-c", program],
            messages=tmp_path / "messages",
            on_line=self.on_line,
            **options,
        )

    def on_line(self, line):
        with self.heard:
            self.lines.append(line)
            self.heard.notify()

    def wait_for(self, count):
        with self.heard:
            assert self.heard.wait_for(lambda: len(self.lines) >= count, timeout=120), self.lines
        return self.lines[count - 1]


def check_until(process, done):
    """What `check` says, or raises, once the process is dead."""
    for _ in range(3_000):
        said = process.check()
        if done(said):
            return said
        threading.Event().wait(0.01)
    raise AssertionError("nothing happened")


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_gone(*pids):
    for pid in pids:
        for _ in range(3_000):
            if is_gone(pid):
                break
            threading.Event().wait(0.01)
        else:
            raise AssertionError(f"process {pid} is still there")


def test_a_process_that_was_killed_is_restarted_and_what_it_had_started_goes_first(tmp_path):
    child = Child(tmp_path, WITH_GRANDCHILD)
    grandchild, first = child.wait_for(1)["grandchild"], child.process.pid
    child.wait_for(2)
    assert child.process.check() is None
    os.kill(first, signal.SIGKILL)
    said = check_until(child.process, bool)
    assert said == f"the child died (signal 9) and was restarted (process {child.process.pid})"
    wait_gone(grandchild)
    last = child.wait_for(3)["grandchild"]
    child.process.end()
    child.process.end()
    wait_gone(first, last, child.process.pid)


def test_finish_waits_for_its_last_line(tmp_path):
    program = SAYS_AND_STAYS + "; print('{\"last\": 1}')"
    child = Child(tmp_path, program)
    child.wait_for(1)
    assert child.process.finish() == 0
    assert child.lines[-1] == {"last": 1}
    assert child.process.check() is None, "it is not restarted"


def test_a_process_that_does_not_listen_is_ended_for_good(tmp_path):
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    child = Child(tmp_path, deaf + "print('{}', flush=True); signal.pause()")
    child.wait_for(1)
    child.process.end(timeout_s=0.2)
    wait_gone(child.process.pid)


def test_one_that_never_does_anything_is_given_up_with_its_last_message(tmp_path):
    child = Child(tmp_path, "import sys; sys.exit('no such thing')")
    with pytest.raises(RequestError, match=r"the child keeps failing: exit code 1: no such thing"):
        check_until(child.process, lambda _: False)
    assert child.process.restarts == 2


def test_one_that_refuses_to_run_is_not_asked_again(tmp_path):
    program = 'import sys; print(\'{"error": "the checkpoint does not fit"}\', file=sys.stderr); sys.exit(2)'
    child = Child(tmp_path, program)
    with pytest.raises(RequestError, match="the child cannot run: the checkpoint does not fit"):
        check_until(child.process, lambda _: False)
    assert child.process.restarts == 0


def test_lines_that_are_no_json_are_kept_beside_the_messages(tmp_path):
    child = Child(
        tmp_path, "print('hello'); print('{\"said\": 1}', flush=True); import sys; sys.stdin.read()"
    )
    child.wait_for(1)
    child.process.end()
    assert child.lines == [{"said": 1}]
    assert (tmp_path / "messages").read_text() == "hello\n"


def test_a_keeper_tells_what_its_checks_did_and_raises_what_they_raise():
    said, told = [], threading.Event()
    answers = iter([None, "it was restarted"])

    def say(text):
        said.append(text)
        told.set()

    def check():
        answer = next(answers, "over")
        if answer == "over":
            raise RequestError("it does not run")
        return answer

    supervisor = Supervisor(say)
    supervisor.add(check)
    assert told.wait(30)
    with pytest.raises(RequestError, match="it does not run"):
        for _ in range(100):
            supervisor.wait(1)
    assert said == ["it was restarted"]
    supervisor.stop()
    supervisor.stop()
