"""Signals to whole process groups, as `timeout` and systemd send them: every command ends in order.

That is exit code 0, one line and no word of trouble, even if the log is in the group and ends first.
"""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from headrace.capture import CaptureSpec, Catalog
from headrace.client import Connection
from headrace.testing.broker import running_broker

APPLICATION = """
from headrace import App
from headrace.derived import table
from tests.unit.sourcing.accounts import Account, decide, evolve

app = App("bank")
app.entity("account", decide=decide, evolve=evolve, initial=Account(), partitions=2)
"""
FOLLOWING = """
from headrace import App
from headrace.derived import table

app = App("shop")
customers = app.capture("sqlite:///{folder}/shop.db", table="customers", name="app")
app.follow(customers, into=table("sqlite:///{folder}/reports.db", "customers"), name="reports")
"""
BOTH = pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)], ids=["term", "int"]
)


@pytest.fixture
def folder(tmp_path):
    """An application with entities, one with a follower, and the database that this one captures."""
    (tmp_path / "bank.py").write_text(APPLICATION)
    (tmp_path / "shop.py").write_text(FOLLOWING.format(folder=tmp_path))
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
        database.executemany(
            "INSERT INTO customers VALUES (?, ?)", [(each, "x" * 100) for each in range(50_000)]
        )
    return tmp_path


@pytest.fixture
def start():
    """Starts commands of `headrace`, the first as the leader of a group and the others in it."""
    started = []

    def start(*words):
        group = started[0].pid if started else 0
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=group,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        started.append(process)
        return process

    yield start
    for each in started:
        each.kill()
        each.communicate()


def commands(start, folder, bootstrap):
    """What runs until it is stopped, once all of it works."""
    with closing(Catalog(Connection(bootstrap_servers=bootstrap))) as catalog:
        catalog.add(CaptureSpec(name="shop", url=f"sqlite:///{folder}/shop.db", tables=("customers",)))
    serving = start("serve", str(folder / "bank.py"), "-b", bootstrap)
    capturing = start("capture", "run", "shop", "-b", bootstrap)
    following = start("follow", "run", "--file", str(folder / "shop.py"), "-b", bootstrap)
    for each in (serving, capturing, following):
        assert "Ctrl-C stops it" in each.stdout.readline()
    read_until(capturing.stderr, "capture shop: snapshot")
    return serving, capturing, following


def read_until(stream, words):
    while words not in (line := stream.readline()):
        assert line, f"it ended before {words!r}"


def require_clean_end(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert out == "stopped\n"
    trouble = [line for line in err.splitlines() if not line.startswith("note: ")]
    assert trouble == []


@BOTH
def test_commands_end_in_order_when_their_group_is_signalled(start, folder, number):
    with running_broker(folder / "log") as broker:
        running = commands(start, folder, f"127.0.0.1:{broker.port}")
        os.killpg(running[0].pid, number)
        for each in running:
            require_clean_end(each)


@pytest.mark.slow
@BOTH
def test_commands_end_in_order_one_by_one(start, folder, number):
    with running_broker(folder / "log") as broker:
        for each in commands(start, folder, f"127.0.0.1:{broker.port}"):
            each.send_signal(number)
            require_clean_end(each)


@pytest.mark.slow
@BOTH
def test_commands_end_although_their_log_ends_with_them(start, folder, number):
    log = start("broker", "--data", str(folder / "log"), "--listen", "127.0.0.1:0")
    bootstrap = log.stdout.readline().split()[2].rstrip(",")
    running = commands(start, folder, bootstrap)
    os.killpg(log.pid, number)
    for each in running:
        require_clean_end(each)
    log.communicate()
    assert log.returncode == 0


@BOTH
def test_a_run_ends_with_all_its_processes_when_its_group_is_signalled(start, folder, number):
    run = start("run", str(folder / "bank.py"), "--data", str(folder / "data"), "--http", "127.0.0.1:0")
    read_until(run.stdout, "Ctrl-C stops it")
    os.killpg(run.pid, number)
    out, err = run.communicate(timeout=120)
    assert run.returncode == 0 and err == "", err
    assert out.splitlines()[-1] == "stopped"
