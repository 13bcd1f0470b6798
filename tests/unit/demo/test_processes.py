"""Processes that are kept alive."""

import os
import signal
import sys
import threading

import psutil
import pytest

from headrace.demo.processes import Keeper, KeptProcess
from headrace.errors import RequestError

SAYS_AND_STAYS = "print('{\"said\": 1}', flush=True); import sys; sys.stdin.read()"
# A grandchild that hears nothing and would live for ever.
WITH_GRANDCHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
print('{{"grandchild": %d}}' % child.pid, flush=True)
{SAYS_AND_STAYS}
"""


class Kept:
    """A kept process, and what it said."""

    def __init__(self, tmp_path, program, **options):
        self.lines = []
        self.heard = threading.Condition()
        self.process = KeptProcess(
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
            assert self.heard.wait_for(lambda: len(self.lines) >= count, timeout=30), self.lines
        return self.lines[count - 1]


def check_until(child, done):
    """What `check` says, or raises, once the process is dead."""
    for _ in range(3_000):
        said = child.check()
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


def test_a_process_that_was_killed_is_started_again_and_what_it_had_started_goes_first(tmp_path):
    kept = Kept(tmp_path, WITH_GRANDCHILD)
    grandchild, first = kept.wait_for(1)["grandchild"], kept.process.pid
    kept.wait_for(2)
    assert kept.process.check() is None
    os.kill(first, signal.SIGKILL)
    said = check_until(kept.process, bool)
    assert said == f"the child had died (signal 9) and was started again (process {kept.process.pid})"
    wait_gone(grandchild)
    last = kept.wait_for(3)["grandchild"]
    kept.process.end()
    kept.process.end()
    wait_gone(first, last, kept.process.pid)


def test_finish_waits_for_its_last_line(tmp_path):
    program = SAYS_AND_STAYS + "; print('{\"last\": 1}')"
    kept = Kept(tmp_path, program)
    kept.wait_for(1)
    assert kept.process.finish() == 0
    assert kept.lines[-1] == {"last": 1}
    assert kept.process.check() is None, "it is not started again"


def test_a_process_that_does_not_listen_is_ended_for_good(tmp_path):
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    kept = Kept(tmp_path, deaf + "print('{}', flush=True); signal.pause()")
    kept.wait_for(1)
    kept.process.end(timeout_s=0.2)
    wait_gone(kept.process.pid)


def test_one_that_never_does_anything_is_given_up_with_its_last_words(tmp_path):
    kept = Kept(tmp_path, "import sys; sys.exit('no such thing')")
    with pytest.raises(RequestError, match=r"the child does not run: exit code 1: no such thing"):
        check_until(kept.process, lambda _: False)
    assert kept.process.restarts == 2


def test_one_that_refuses_to_run_is_not_asked_again(tmp_path):
    program = 'import sys; print(\'{"error": "the checkpoint does not fit"}\', file=sys.stderr); sys.exit(2)'
    kept = Kept(tmp_path, program)
    with pytest.raises(
        RequestError, match="the child does not run: exit code 2: the checkpoint does not fit"
    ):
        check_until(kept.process, lambda _: False)
    assert kept.process.restarts == 0


def test_lines_that_are_no_json_are_kept_beside_the_messages(tmp_path):
    kept = Kept(tmp_path, "print('hello'); print('{\"said\": 1}', flush=True); import sys; sys.stdin.read()")
    kept.wait_for(1)
    kept.process.end()
    assert kept.lines == [{"said": 1}]
    assert (tmp_path / "messages").read_text() == "hello\n"


def test_a_keeper_tells_what_its_checks_did_and_raises_what_they_raise():
    said, told = [], threading.Event()
    answers = iter([None, "it was started again"])

    def say(text):
        said.append(text)
        told.set()

    def check():
        answer = next(answers, "over")
        if answer == "over":
            raise RequestError("it does not run")
        return answer

    keeper = Keeper(say)
    keeper.add(check)
    assert told.wait(30)
    with pytest.raises(RequestError, match="it does not run"):
        for _ in range(100):
            keeper.wait(1)
    assert said == ["it was started again"]
    keeper.stop()
    keeper.stop()
