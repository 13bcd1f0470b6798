"""Machines made of namespaces have nothing in common, can be cut off, and disappear with their test."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import headrace
from headrace.testing.machines import Machines
from headrace.testing.maven import PeerUnavailable

SOURCES = Path(headrace.__file__).parents[1]
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), int(sys.argv[3]))"


def entered(folder, **fields):
    try:
        return Machines(folder, **fields).__enter__()
    except PeerUnavailable as reason:
        if os.environ.get("HEADRACE_REQUIRE_MACHINES") == "1":
            pytest.fail(f"{reason}; unset HEADRACE_REQUIRE_MACHINES to skip this")
        pytest.skip(str(reason))


@pytest.fixture
def machines(tmp_path):
    found = entered(tmp_path, installed=[Path(sys.prefix), SOURCES])
    yield found
    found.__exit__(None, None, None)


def network():
    return Path("/proc/thread-self/ns/net").readlink()


def test_two_machines_share_neither_files_nor_names_but_what_is_installed(machines, tmp_path):
    first, second = machines.add("first"), machines.add("second")
    (tmp_path / "ours").write_text("")
    for folder in (tmp_path, Path("/tmp"), Path("/dev/shm")):
        first.run(["touch", str(folder / "file-of-first")])
        assert "file-of-first" not in second.run(["ls", str(folder)])
        assert not (folder / "file-of-first").exists()
    assert "ours" not in first.run(["ls", str(tmp_path)])
    assert [each.run(["hostname"]).strip() for each in (first, second)] == ["first", "second"]
    found = second.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SOURCES)!r}); import headrace"]
    )
    assert found == ""


def test_a_machine_reaches_the_network_and_the_others_until_it_is_cut_off(machines):
    one = machines.add("one")
    with socket.create_server((machines.address, 0)) as server:
        calling = [sys.executable, "-c", CONNECT, machines.address, str(server.getsockname()[1])]
        one.run([*calling, "20"])
        one.cut()
        with pytest.raises(subprocess.CalledProcessError) as refused:
            one.run([*calling, "2"])
        assert "timed out" in refused.value.stderr or "No route" in refused.value.stderr
        one.heal()
        one.run([*calling, "20"])


def test_the_thread_is_on_a_network_of_its_own_and_comes_back(tmp_path):
    before = network()
    with entered(tmp_path):
        assert network() != before
        with pytest.raises(OSError), socket.create_connection(("192.0.2.1", 80), 5):
            pass
    assert network() == before


def test_programs_are_found_by_their_command_lines_and_end_with_the_machines(machines, tmp_path):
    machine = machines.add("one")
    started = machine.popen(["sleep", "98765"], dict(os.environ))
    while not machine.pids("98765"):
        assert started.poll() is None
    assert machine.pids("98765") == [started.pid]
    machines.__exit__(None, None, None)
    assert started.wait(60) == -signal.SIGKILL


def test_machines_end_with_the_process_that_made_them_however_that_ends(tmp_path):
    entered(tmp_path).__exit__(None, None, None)  # skips where there are none
    script = f"""
import os, signal, sys
from pathlib import Path
from headrace.testing.machines import Machines
with Machines(Path({str(tmp_path)!r})) as machines:
    print(machines.add("one").popen(["sleep", "98765"], dict(os.environ)).pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    program, deadline = Path("/proc", done.stdout.strip()), time.monotonic() + 60
    while program.exists():
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.05)
