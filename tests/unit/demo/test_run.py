"""What a signal requests of the demo: verification, or an immediate stop."""

import os
import signal
import subprocess
import sys

import pytest

from headrace.demo.run import stop_request

SHOP = """
import signal, sys, time
from headrace.demo.run import stop_request

with stop_request() as request:
    try:
        if "open" in sys.argv:
            request.accept()
        print("living", flush=True)
        while not request.is_set:
            time.sleep(0.05)  # a lock of Python's may be left broken by an exception of a handler
        print("verifying", flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print("ended", flush=True)
"""


@pytest.mark.parametrize(
    ("state", "signals", "said"),
    [
        ("open", [signal.SIGINT, signal.SIGINT], ["verifying", "ended"]),
        ("open", [signal.SIGINT, signal.SIGTERM], ["verifying", "ended"]),
        ("open", [signal.SIGTERM], ["ended"]),
        ("opening", [signal.SIGINT], ["ended"]),
    ],
)
def test_ctrl_c_closes_an_open_shop_once_and_anything_else_stops_it(state, signals, said):
    command = [sys.executable, "-c", SHOP, state]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shop:
        assert shop.stdout.readline() == "living\n"
        for number, answer in zip(signals, said, strict=True):
            os.kill(shop.pid, number)
            assert shop.stdout.readline() == f"{answer}\n"
        assert shop.wait(30) == 0


def test_signals_are_as_before_afterwards_and_ignored_ones_stay_ignored():
    kept = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before = signal.getsignal(signal.SIGINT)
    try:
        with stop_request() as request:
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) == request.handle
        assert signal.getsignal(signal.SIGINT) == before
        assert signal.getsignal(signal.SIGTERM) != request.handle
    finally:
        signal.signal(signal.SIGHUP, kept)
