"""What a signal asks of a command that waits, however the command was started."""

import functools
import os
import signal
import subprocess
import sys

import pytest

from headrace.stopping import Stopping, hearing, held_back, stop_signals

WAITING = """
import sys, threading
from headrace.stopping import hearing
told = threading.Event()
with hearing(lambda *_: told.set()):
    print("waiting", flush=True)
    told.wait()
print("told", flush=True)
"""


def ignore(*signals):
    for each in signals:
        signal.signal(each, signal.SIG_IGN)


@pytest.mark.parametrize("ignored", [(signal.SIGINT,), (signal.SIGINT, signal.SIGHUP)], ids=["&", "nohup"])
def test_ctrl_c_is_heard_although_it_was_ignored_and_a_terminal_s_end_is_not_under_nohup(ignored):
    command, start = [sys.executable, "-c", WAITING], functools.partial(ignore, *ignored)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=start) as process:
        try:
            assert process.stdout.readline() == "waiting\n"
            if signal.SIGHUP in ignored:
                os.kill(process.pid, signal.SIGHUP)
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(60) == 0, "it was not told"
            assert process.stdout.read() == "told\n"
        finally:
            process.kill()


class EndedError(Exception):
    pass


def end_at_once():
    raise EndedError


def test_the_first_signal_asks_for_an_orderly_end_and_a_later_ctrl_c_for_one_at_once():
    now, asked = [0.0], []
    stopping = Stopping(end_at_once, now=lambda: now[0])
    stopping.on_stop = lambda: asked.append("stop")
    stopping.hear(signal.SIGTERM)
    stopping.hear(signal.SIGTERM)  # `timeout` sends it to the process and to its group
    stopping.hear(signal.SIGINT)
    now[0] = 5.0
    stopping.hear(signal.SIGTERM)
    assert asked == ["stop"]
    with pytest.raises(EndedError):
        stopping.hear(signal.SIGINT)


def test_before_there_is_anything_to_stop_a_signal_interrupts():
    with pytest.raises(KeyboardInterrupt):
        Stopping(end_at_once).hear(signal.SIGTERM)


def test_signals_that_are_held_back_are_handled_at_the_end_by_the_handlers_of_the_beginning():
    heard = []
    with hearing(lambda number, _: heard.append(number)):
        with held_back():
            signal.raise_signal(signal.SIGTERM)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # as a new Spark does
            assert heard == []
        assert heard == [signal.SIGTERM]
        signal.raise_signal(signal.SIGINT)
        assert heard == [signal.SIGTERM, signal.SIGINT]


def test_a_child_that_is_ended_by_its_input_hears_no_signals(monkeypatch):
    assert signal.SIGTERM in stop_signals()
    monkeypatch.setenv("HEADRACE_STOPPED_BY_INPUT", "1")
    assert stop_signals() == ()
