"""The demonstration from start to end, as `make demo` runs it but with few orders."""

import os
import re
import signal
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

COMMAND = [sys.executable, "-m", "headrace.demo", "--rate", "600"]


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def children(output):
    found = [int(pid) for pid in re.findall(r"\(process (\d+)\)", output)]
    assert len(found) == 2, output
    return found


def test_the_table_is_what_was_produced_and_nothing_is_left_running(tmp_path):
    done = subprocess.run(
        [*COMMAND, "--seconds", "1", "--data", tmp_path / "demo"], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "checked: every view is exactly what the log says" in done.stdout
    for view in ("revenue_per_minute", "best_sellers", "visits", "failed_payments"):
        assert re.search(rf"^{view} .* equal$", done.stdout, re.MULTILINE), done.stdout
    assert not any(is_alive(pid) for pid in children(done.stdout))
    assert (tmp_path / "demo" / "views.db").exists()


def test_an_interrupt_ends_every_process_and_leaves_no_folder(tmp_path):
    demo = subprocess.Popen(
        [*COMMAND, "--seconds", "250"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    output = ""
    for line in demo.stdout:
        output += line
        if "changed:" in line:
            break
    demo.send_signal(signal.SIGINT)
    output += demo.stdout.read()
    assert demo.wait(timeout=60) == 130, output
    assert "interrupted" in output
    assert not any(is_alive(pid) for pid in children(output))
    assert not list(tmp_path.glob("headrace-demo-*"))


def test_a_folder_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "precious").touch()
    done = subprocess.run([*COMMAND, "--data", tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "is not empty; name an empty folder" in done.stderr
    assert (tmp_path / "precious").exists()
