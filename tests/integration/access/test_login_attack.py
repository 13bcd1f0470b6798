"""Guessing passwords over many connections: whoever has the right one gets in meanwhile."""

import contextlib
import queue
import select
import socket
import struct
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest

from headrace.broker.access import offline
from headrace.client.connect.channel import Channel
from headrace.client.connect.login import Security
from headrace.testing.broker import running_broker
from headrace.wire import Api, encode_request

GUESSES = 200
AND_MORE = 100  # for whom there is no room


class ByHand(Executor):
    """In place of the thread that checks passwords: each check is made when the test says so."""

    def __init__(self):
        self._given = queue.SimpleQueue()

    def submit(self, check, /, *args, **kwargs):
        self._given.put((check, given := Future()))
        return given

    def make_one(self, timeout_s=60):
        check, given = self._given.get(timeout=timeout_s)
        if given.set_running_or_notify_cancel():
            given.set_result(check())


def guessing(port, name):
    """A connection that has sent one guess and waits for the answer."""
    raw = socket.create_connection(("127.0.0.1", port), 30)
    raw.sendall(bytes(encode_request(Api.SASL_HANDSHAKE, 1, 1, "guess", {"mechanism": "PLAIN"})))
    token = {"auth_bytes": f"\0{name}\0wrong".encode()}
    raw.sendall(bytes(encode_request(Api.SASL_AUTHENTICATE, 2, 2, "guess", token)))
    size = struct.unpack(">i", raw.recv(4, socket.MSG_WAITALL))[0]  # of the handshake's answer
    raw.recv(size, socket.MSG_WAITALL)
    return raw


def answered(crowd):
    """Those that were answered, or whose connection was ended."""
    return len(select.select(crowd, [], [], 0)[0])


def wait_until(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("name", "known_before"),
    [("alice", False), ("name-{}", False), ("alice", True)],
    ids=["at the same name", "at many names", "of somebody who was there before"],
)
def test_a_right_login_gets_in_while_others_guess(tmp_path, name, known_before):
    """Counted in checks: the one that is being made is waited for, and none by whoever was there before."""
    for user in ("alice", "bob"):
        offline.add_user(tmp_path, user, f"password of {user}")

    def log_in():
        security = Security(mechanism="PLAIN", user="alice", password="password of alice")
        made = Channel("127.0.0.1", broker.port, client_id="t", timeout_ms=120_000, security=security)
        with contextlib.closing(made) as channel:
            assert channel.request(Api.METADATA, 9, {"topics": None}).topics == ()

    def guess(numbers):
        return [stack.enter_context(guessing(broker.port, name.format(number))) for number in numbers]

    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(running_broker(tmp_path, authenticate=True, receive_timeout_ms=600_000))
        clients = stack.enter_context(ThreadPoolExecutor(1))
        waiting = broker.services.access._checks
        checks, line = ByHand(), waiting._line
        waiting._thread = checks
        if known_before:
            login = clients.submit(log_in)
            checks.make_one()
            login.result(120)
        crowd = guess(range(GUESSES))
        wait_until(lambda: len(line) == GUESSES - 1)
        login = clients.submit(log_in)
        if not known_before:
            wait_until(lambda: len(line) == GUESSES)
            checks.make_one()
            checks.make_one()
        login.result(120)
        crowd += guess(range(AND_MORE))
        while not known_before and answered(crowd) < len(crowd):  # nobody is left without an answer or an end
            with contextlib.suppress(queue.Empty):
                checks.make_one(0.1)
