"""Hundreds of readers that take nothing: the memory of the process, and whoever else asks."""

import contextlib
import re
import socket
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.console.http_client import Events, ask

from headrace.testing.console import ConsoleProcess

READERS = 300
RECORD_BYTES = 200_000
EVENT_BYTES = 1_000_000  # of five records: every reader waits for an event of its own
BUFFERED_BYTES, READER_BYTES = 8 << 20, 16 << 10
# What the settings state, and what a process needs to read and encode pages besides.
# Without a bound these readers would hold more than 600 MiB.
BOUND_BYTES = BUFFERED_BYTES + READERS * READER_BYTES + (150 << 20)
PATIENCE_S = 280  # only for what hangs


def resident_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) * 1024


@pytest.fixture
def long_topic(our_log, make_topic):
    topic = make_topic("long")
    producer = Producer({"bootstrap.servers": our_log.bootstrap_servers, "linger.ms": 5})
    for number in range(READERS + 5):
        producer.produce(topic, b"%d:" % number + b"x" * RECORD_BYTES)
        producer.poll(0)
    assert producer.flush(120) == 0
    return topic


def subscribed(console, topic, offset, *, by_socket):
    """A subscriber that has asked, and takes a few bytes at most."""
    opened = socket.socket()
    opened.settimeout(PATIENCE_S)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.connect(("127.0.0.1", console.port))
    wanted = "Accept: text/event-stream\r\n"
    if by_socket:
        wanted = (
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        )
    path = f"/v1/topics/{topic}/records?partition=0&offset={offset}"
    opened.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{wanted}\r\n".encode())
    return opened


def count_cut(console, reason="full"):
    lines = ask(console.url, "GET", "/metrics").body.decode().splitlines()
    name = f'headrace_console_readers_cut_total{{reason="{reason}"}}'
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_hundreds_of_slow_readers_cost_bounded_memory_and_nobody_else_a_request(our_log, long_topic):
    """Four threads, few places behind them: whoever else asks is served at once, and never turned away."""
    settings = {
        "max_buffered_bytes": BUFFERED_BYTES,
        "reader_buffer_bytes": READER_BYTES,
        "event_bytes": EVENT_BYTES,
        "slow_reader_ms": 600_000,
        "threads": 4,
        "max_waiting": 8,
    }
    with contextlib.ExitStack() as stack:
        console = stack.enter_context(ConsoleProcess(our_log.bootstrap_servers, **settings))
        with Events(console.url, f"/v1/topics/{long_topic}/records?from=earliest") as events:
            assert next(each for each in events if each.name == "records")  # all that it needs is loaded
        before, grown = resident_bytes(console.pid), [0]

        def look():
            """Somebody who needs a thread, and what the process has grown by."""
            served = ask(console.url, "GET", "/v1/views", patient=False)
            assert served.status == 200, served.body
            grown.append(resident_bytes(console.pid) - before)
            assert grown[-1] < BOUND_BYTES, f"{grown[-1] / 2**20:.0f} MiB more than without slow readers"

        for offset in range(READERS):
            opened = stack.enter_context(subscribed(console, long_topic, offset, by_socket=offset % 2))
            assert opened.recv(12) == (b"HTTP/1.1 101" if offset % 2 else b"HTTP/1.1 200")
            if offset % 3 == 0:
                look()
        deadline = time.monotonic() + PATIENCE_S
        while count_cut(console) < READERS // 2:
            look()
            assert time.monotonic() < deadline, "the readers are neither served nor cut"


@pytest.mark.parametrize("by_socket", [False, True], ids=["sse", "websocket"])
def test_a_reader_that_takes_nothing_for_too_long_is_cut(our_log, make_topic, by_socket):
    topic = make_topic(f"stalled-{by_socket}")
    producer = Producer({"bootstrap.servers": our_log.bootstrap_servers})
    for _ in range(30):
        producer.produce(topic, b"x" * RECORD_BYTES)
    assert producer.flush(120) == 0
    settings = {"slow_reader_ms": 300, "reader_buffer_bytes": READER_BYTES, "event_bytes": EVENT_BYTES}
    with ConsoleProcess(our_log.bootstrap_servers, **settings) as console:
        with contextlib.closing(subscribed(console, topic, 0, by_socket=by_socket)):
            deadline = time.monotonic() + PATIENCE_S
            while not count_cut(console, "stalled"):
                assert time.monotonic() < deadline, "it is waited for without end"
                time.sleep(0.05)
        with Events(console.url, f"/v1/topics/{topic}/records?from=earliest") as events:
            assert next(each for each in events if each.name == "records").id  # from which one resumes
