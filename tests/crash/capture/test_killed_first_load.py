"""A first load of PostgreSQL that is killed: every row of a table without a key once, every table whole."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.integration.capture.conftest import running, wait_until
from tests.integration.capture.postgres.conftest import started
from tests.integration.capture.postgres.databases import Database
from tests.integration.capture.reading import folded, read_topic

from headrace.testing.broker import BrokerProcess

SCRIPT = Path(__file__).with_name("capturing_postgres.py")
ROWS = 100_000


def kill_within(command: list[object], most_s: float) -> str:
    """Kills the process so soon after it has begun to load; what it said last."""
    process = subprocess.Popen([str(each) for each in command], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = ""
    for said in process.stdout:
        state, rows = said.split()
        if state == "streaming" or int(rows):
            break
    time.sleep(random.uniform(0, most_s))
    process.kill()
    process.wait()
    return said


def rows_of(broker: BrokerProcess, topic: str) -> dict[str, dict]:
    return {str(each["id"]): each for each in folded(read_topic(broker.bootstrap, topic)).values()}


def load_and_kill(tmp_path: Path, kills: int) -> None:
    with (
        started() as server,
        Database(server, "bank") as database,
        BrokerProcess(tmp_path / "log") as broker,
    ):
        database.run(
            "CREATE TABLE bare (n int)",
            "ALTER TABLE bare REPLICA IDENTITY FULL",
            f"INSERT INTO bare SELECT generate_series(1, {ROWS})",
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            f"INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, {ROWS}) g",
        )
        command = [sys.executable, SCRIPT, server.url("bank"), broker.bootstrap, "loaded", "5000", "2"]
        for number in range(kills):
            print(number, kill_within(command, most_s=0.5))
            database.run(
                f"INSERT INTO bare VALUES (-{number})",
                f"DELETE FROM t WHERE id % 100 = {number}",
                f"UPDATE t SET v = '{number}' WHERE id % 100 = 50",
            )

        def source():
            return database.source("loaded", load_workers=2)

        wanted = database.rows("t", "id")
        with running(broker.bootstrap, "loaded", source) as run:
            wait_until(lambda: run.status.state == "streaming", 120)
            wait_until(lambda: rows_of(broker, "loaded.public.t") == wanted)
        told = Counter(
            each.value["after"]["n"] for each in read_topic(broker.bootstrap, "loaded.public.bare")
        )
        assert told == Counter([*range(1, ROWS + 1), *(-number for number in range(kills))])


@pytest.mark.xdist_group("crash")
def test_a_first_load_that_is_killed_has_every_row_once(tmp_path):
    load_and_kill(tmp_path, kills=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_first_load_that_is_killed_twenty_times_has_every_row_once(tmp_path):
    load_and_kill(tmp_path, kills=20)
