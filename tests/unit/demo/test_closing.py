"""What a signal asks of the demonstration: the proof, or the end."""

import os
import signal
import subprocess
import sys

import pytest

from headrace.demo.closing import closing

SHOP = """
import sys, threading
from headrace.demo.closing import closing

never = threading.Event()
with closing() as heard:
    try:
        if "open" in sys.argv:
            heard.open()
        print("living", flush=True)
        while not heard.is_asked:
            never.wait(0.05)
        print("proving", flush=True)
        never.wait()
    except KeyboardInterrupt:
        print("ended", flush=True)
"""


def hear_ctrl_c():
    """In the child, also where whoever runs the tests ignores Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize(
    ("state", "signals", "said"),
    [
        ("open", [signal.SIGINT, signal.SIGINT], ["proving", "ended"]),
        ("open", [signal.SIGINT, signal.SIGTERM], ["proving", "ended"]),
        ("open", [signal.SIGTERM], ["ended"]),
        ("opening", [signal.SIGINT], ["ended"]),
    ],
)
def test_ctrl_c_asks_an_open_shop_for_its_proof_once_and_anything_else_ends_it(state, signals, said):
    command = [sys.executable, "-c", SHOP, state]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=hear_ctrl_c) as shop:
        assert shop.stdout.readline() == "living\n"
        for number, answer in zip(signals, said, strict=True):
            os.kill(shop.pid, number)
            assert shop.stdout.readline() == f"{answer}\n"
        assert shop.wait(30) == 0


def test_signals_are_as_before_afterwards_and_ignored_ones_stay_ignored():
    kept = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before = signal.getsignal(signal.SIGINT)
    try:
        with closing() as heard:
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) == heard.hear
        assert signal.getsignal(signal.SIGINT) == before
        assert signal.getsignal(signal.SIGTERM) != heard.hear
    finally:
        signal.signal(signal.SIGHUP, kept)
