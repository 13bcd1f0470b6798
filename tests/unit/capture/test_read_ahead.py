"""A stream that is read ahead: in order, within its bound, and the server hears from us meanwhile."""

import queue
import threading
import time
from contextlib import closing

import pytest

from headrace.capture.server import ReadAhead
from headrace.errors import RetriableError


class Sent:
    """What a server sends: bytes, or an error that its connection ends with."""

    def __init__(self, *parts):
        self.waiting = queue.Queue()
        self.received = 0
        for each in parts:
            self.waiting.put(each)

    def wait(self, wait_s):
        until = time.monotonic() + wait_s
        while self.waiting.empty() and time.monotonic() < until:
            time.sleep(0.001)
        return not self.waiting.empty()

    def receive(self):
        part = self.waiting.get()
        if isinstance(part, Exception):
            raise part
        self.received += len(part)
        return part


def reading(sent, **settings):
    return closing(ReadAhead(sent.receive, sent.wait, **{"most_bytes": 1 << 20, **settings}))


def wait_until(holds):
    until = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_what_arrived_is_handed_over_in_order_and_then_the_error():
    sent = Sent(b"one", b"two", RetriableError("gone"))
    with reading(sent) as ahead:
        wait_until(lambda: sent.waiting.empty())
        found = b""
        while len(found) < 6:
            found += ahead.take()
        assert found == b"onetwo" and ahead.wait(5)
        for _ in range(2):
            with pytest.raises(RetriableError, match="gone"):
                ahead.take()


def test_no_more_than_the_bound_and_one_part_are_held():
    sent = Sent(*[b"x" * 10] * 100)
    with reading(sent, most_bytes=25) as ahead:
        wait_until(lambda: sent.received == 30)
        assert not sent.waiting.empty() and ahead.take() == b"x" * 30
        wait_until(lambda: sent.received == 60)


def test_the_server_hears_from_us_while_nobody_takes_what_is_there():
    ticks = []
    sent = Sent(b"x" * 10)
    with reading(sent, most_bytes=5, tick=lambda: ticks.append(threading.get_ident()), tick_s=0.01):
        wait_until(lambda: len(ticks) > 5)
    assert set(ticks) != {threading.get_ident()}


def test_an_error_of_a_tick_ends_it():
    def fail():
        raise RetriableError("the connection is lost")

    with reading(Sent(), tick=fail, tick_s=0.01) as ahead, pytest.raises(RetriableError, match="is lost"):
        ahead.take()


def test_whoever_waits_reads_for_itself():
    sent = Sent()
    with reading(sent) as ahead:
        threads = {threading.get_ident()}
        receive, ahead._receive = ahead._receive, lambda: threads.add(threading.get_ident()) or receive()
        for number in range(200):
            sent.waiting.put(b"%d" % number)
            assert ahead.take() == b"%d" % number
    assert threads == {threading.get_ident()}


def test_it_says_when_nothing_came():
    with reading(Sent()) as ahead:
        assert not ahead.wait(0.01)
