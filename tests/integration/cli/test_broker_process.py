"""The broker as the child of another process."""

import json
import subprocess
import sys


def start(data, *flags):
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "headrace",
            "broker",
            "--json",
            "--data",
            data,
            "--listen",
            "127.0.0.1:0",
            *flags,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def test_it_ends_cleanly_when_its_input_does_if_asked_to(tmp_path):
    broker = start(tmp_path, "--until-stdin-closes")
    assert json.loads(broker.stdout.readline())["pid"] == broker.pid
    broker.stdin.write(b"ignored\n")
    broker.stdin.flush()
    broker.stdin.close()
    assert broker.wait(timeout=120) == 0


def test_otherwise_it_does_not_care(tmp_path):
    broker = start(tmp_path)
    assert json.loads(broker.stdout.readline())["pid"] == broker.pid
    broker.stdin.close()
    try:
        broker.wait(timeout=1)
    except subprocess.TimeoutExpired:
        return
    else:
        raise AssertionError("the broker ended with its input, unasked")
    finally:
        broker.kill()
        broker.wait()
