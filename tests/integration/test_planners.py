"""Spark's planners are forked from a process that has their imports behind it, or start without it."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from headrace.streams.spark.planners import planners
from headrace.streams.spark.worker_python import worker_python

PLANNER = ["-m", "pyspark.daemon", "pyspark.sql.worker.lookup_data_sources"]
TIMEOUT_S = 120
SECRET = "of this test"


@contextlib.contextmanager
def started(**environment):
    """A daemon of planners as Spark starts it, once it has said where it listens."""
    python = worker_python({})
    process = subprocess.Popen(
        [python["PYSPARK_PYTHON"], *PLANNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **python, **environment},
    )
    with process:
        assert len(process.stdout.read(4)) == 4, "the port"
        yield psutil.Process(process.pid)
        process.stdin.close()
        process.wait(TIMEOUT_S)


def test_a_planner_is_forked_and_ends_with_its_input_and_so_does_what_stands_for_it():
    with started(**planners()) as process:
        assert any(Path(each).name == "planner.py" for each in process.cmdline())
        assert process.memory_info().rss < 30 << 20, "it imports nothing"


@pytest.mark.parametrize("address", ["/nowhere/orders", ""], ids=["nobody is there", "none was started"])
def test_a_planner_starts_by_itself_where_nobody_forks(address):
    with started(HEADRACE_PLANNERS=address) as process:
        assert process.cmdline()[1:] == PLANNER


def test_who_forks_ends_with_the_driver_and_leaves_no_folder():
    driver = "from headrace.streams.spark import planners as p; p.planners(); print(*p.planners().values())"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{driver}\nimport time\ntime.sleep(600)"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    with process:
        address = Path(process.stdout.readline().strip())
        (forks,) = psutil.Process(process.pid).children()
        assert address.is_socket() and address.parent.stat().st_mode & 0o077 == 0
        process.kill()
    _, alive = psutil.wait_procs([forks], timeout=TIMEOUT_S)
    assert not alive and not address.parent.exists()


def test_the_planner_of_a_query_waits_for_as_long_as_a_micro_batch_takes():
    """Others wait a time of Spark's for their first request, here a second."""
    python = worker_python({})
    with socket.create_server(("127.0.0.1", 0)) as spark:
        environment = {
            "PYTHON_WORKER_FACTORY_PORT": str(spark.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": SECRET,
            "SPARK_AUTH_SOCKET_TIMEOUT": "1",
        }
        process = subprocess.Popen(
            [python["PYSPARK_PYTHON"], "-m", "pyspark.sql.streaming.python_streaming_source_runner"],
            env={**os.environ, **python, **planners(), **environment},
        )
        with process:
            connection, _ = spark.accept()
            with connection, connection.makefile("rb") as received:
                size = int.from_bytes(received.read(4), "big")
                assert received.read(size) == SECRET.encode()
                connection.sendall(len(b"ok").to_bytes(4, "big") + b"ok")
                assert len(received.read(4)) == 4, "its process id"
                connection.settimeout(3)
                with pytest.raises(TimeoutError):
                    connection.recv(1)  # neither an error nor the end
            process.wait(TIMEOUT_S)
