"""The console beside an application: kept alive on its port, passing commands on, ending with its parent."""

import os
import queue
import signal
import socket
import subprocess
import sys

import psutil
import pytest
from tests.integration.console.http_client import ask
from tests.integration.console.shop import Shop

from headrace.app.processes.sidecars import ConsoleSidecar, free_address
from headrace.app.status.lock import locked
from headrace.errors import ConfigError

TIMEOUT_S = 240


@pytest.fixture
def shop(our_log, tmp_path):
    return Shop(tmp_path, our_log.bootstrap_servers)


@pytest.fixture
def commands():
    return queue.SimpleQueue()


@pytest.fixture
def beside(our_log, shop, commands):
    console = ConsoleSidecar(shop.data, our_log, "127.0.0.1:0", environment={}, on_command=commands.put)
    yield console
    console.end()


def test_a_killed_console_is_started_again_where_it_was_and_passes_commands_on(beside, shop, commands):
    url = beside.url.rstrip("/")
    assert beside.check() is None
    with locked(shop.data):
        for _ in range(2):
            answer = ask(url, "POST", "/v1/pipelines/rebuild", {"confirm": "shop"})
            assert (answer.status, answer.json["asked"]) == (202, True)
            assert commands.get(timeout=TIMEOUT_S) == {"command": "rebuild", "who": "local"}
            before = beside.pid
            os.kill(before, signal.SIGKILL)
            beside.child._process.wait(TIMEOUT_S)
            said = None
            while said is None:  # not more often than every second
                said = beside.check()
            assert "was restarted" in said
            assert beside.pid != before
            assert ask(url, "GET", "/healthz").json["driver"] == "running"


def test_an_ended_console_is_gone_and_stays_so(beside):
    pid = beside.pid
    beside.end()
    beside.end()
    assert not psutil.pid_exists(pid)
    with pytest.raises(ConnectionRefusedError):
        ask(beside.url.rstrip("/"), "GET", "/healthz")


def test_a_console_ends_with_the_process_that_started_it(our_log, shop):
    program = f"""
import sys
from pathlib import Path
from headrace.app.processes.sidecars import ConsoleSidecar
from headrace.client import Connection
console = ConsoleSidecar(Path({str(shop.data)!r}), {our_log!r}, "127.0.0.1:0",
                         environment={{}}, on_command=print)
print(console.pid, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    console = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs([console], timeout=TIMEOUT_S)
    assert not alive


def test_a_taken_port_is_said_and_a_default_one_is_replaced(our_log, shop):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert free_address(address) == "127.0.0.1:0"
        with pytest.raises(ConfigError, match="the console on"):
            ConsoleSidecar(shop.data, our_log, address, environment={}, on_command=lambda _: None)
    assert free_address(address) == address
