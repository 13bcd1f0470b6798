"""The demonstration from start to end, with everything in it killed on the way."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import orjson
import psutil
import pytest
from confluent_kafka import TopicPartition

from headrace.app.processes.embedded_log import EmbeddedLog
from headrace.client import Connection, consumer

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("drivers")]

COMMAND = [sys.executable, "-m", "headrace", "demo", "--json"]
VIEWS = {
    "revenue_per_minute",
    "best_sellers",
    "visits",
    "failed_payments",
    "searches_per_minute",
    "orders_of_customers",
    "abandoned_searches",
    "customers_per_tier",
    "timelines",
}
TIMEOUT_S = 600


class Demo:
    """A demonstration that runs, and every line it printed."""

    def __init__(self, *arguments, **environment):
        self.lines = []
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self._heard = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._heard:
                self.lines.append(json.loads(line))
                self._heard.notify_all()
        with self._heard:
            self._heard.notify_all()

    def events(self, name):
        return [line for line in self.lines if line["event"] == name]

    def wait_for(self, name, count=1):
        """The first line of an event, or a later one; fails at once if the demonstration ends before."""

        def is_there():
            return len(self.events(name)) >= count or not self._reader.is_alive()

        with self._heard:
            self._heard.wait_for(is_there, timeout=TIMEOUT_S)
        assert len(self.events(name)) >= count, self.story()
        return self.events(name)[count - 1]

    def end(self):
        """Its exit code."""
        code = self.process.wait(timeout=TIMEOUT_S)
        self._reader.join(30)
        return code

    def family(self):
        """Every process it started, and theirs."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, *words):
        """The process below it whose command line has these words."""
        (found,) = [each for each in psutil.Process(self.process.pid).children() if _has(each, words)]
        return found

    def story(self):
        told = "\n".join(f"{line.get('seconds', '')} {line.get('text', line)}" for line in self.lines)
        return told if self.process.poll() is None else told + self.process.stderr.read()


def _has(process, words):
    with contextlib.suppress(psutil.Error):
        return all(word in process.cmdline() for word in words)
    return False


def wait_gone(family):
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive, [each.cmdline()[:4] for each in alive]


@contextlib.contextmanager
def demo(*arguments, **environment):
    made = Demo(*arguments, **environment)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.send_signal(signal.SIGTERM)
            made.end()


def committed(bootstrap, topic):
    """Every committed record of a topic, as JSON where it is."""
    reader = consumer(
        Connection(bootstrap_servers=bootstrap),
        "test",
        auto_offset_reset="earliest",
        enable_partition_eof=True,
    )
    parts = reader.list_topics(topic, timeout=30).topics[topic].partitions
    reader.assign([TopicPartition(topic, each, 0) for each in parts])
    left, values = set(parts), []
    while left:
        message = reader.poll(30)
        assert message is not None, f"{topic} does not come to its end"
        if message.error() is not None:
            left.discard(message.partition())
            continue
        with contextlib.suppress(orjson.JSONDecodeError):
            values.append(orjson.loads(message.value()))
    reader.close()
    return values


def assert_proved(run):
    assert run.end() == 0, run.story()
    (table,) = run.events("table")
    assert {each["view"] for each in table["views"]} == VIEWS
    assert all(each["rows"] > 0 and each["different"] == 0 for each in table["views"]), table
    assert run.events("checked"), run.story()
    (told,) = run.events("deliveries")
    assert len(told["lines"]) == 2, "of a webhook and of a mail"
    (customers,) = run.events("customers")
    assert customers["database"] == customers["index"] > 0
    (sent,) = run.events("sent")
    assert sent["committed"] > 0, "the database was changed while it ran"
    return {each["view"]: each for each in table["views"]}


@pytest.mark.timeout(1200)
def test_the_shop_lives_until_ctrl_c_and_is_proved_and_leaves_nothing_running(tmp_path):
    with demo("--rate", 25, "--data", tmp_path / "demo") as run:
        run.wait_for("headlines")
        assert "corrected: revenue of " in run.wait_for("corrections")["text"]
        family = run.family()
        assert not run.events("closing")
        run.process.send_signal(signal.SIGINT)
        run.wait_for("closing")
        assert {"log", "application", "traffic"} <= {line["event"] for line in run.lines if line.get("pid")}
        assert run.wait_for("console")["lines"][0].startswith("open http://127.0.0.1:")
        rows = assert_proved(run)
    wait_gone(family)
    assert rows["revenue_per_minute"]["corrected"] > 0
    assert rows["visits"]["dropped"] > 0
    without_faults = {"customers_per_tier", "timelines"}  # tables, whose rows can all be read
    assert {name for name, each in rows.items() if not each["dead"]} == without_faults
    assert (tmp_path / "demo" / "views.db").exists()


@pytest.mark.parametrize(
    ("end", "code"), [(signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)], ids=["Ctrl-C", "kill -9"]
)
def test_however_it_ends_while_spark_starts_no_process_is_left(tmp_path, end, code):
    with demo("--rate", 20, TMPDIR=str(tmp_path)) as run:
        run.wait_for("sending")
        family = run.family()
        assert len(family) >= 3, "log, application, traffic"
        run.process.send_signal(end)
        assert run.end() == code, run.story()
    wait_gone(family)
    assert bool(list(tmp_path.glob("headrace-demo-*"))) == (end == signal.SIGKILL)


def test_a_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "precious").touch()
    done = subprocess.run([*COMMAND, "--data", tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "not the folder of an earlier demo" in json.loads(done.stderr)["error"]
    assert [each.name for each in tmp_path.iterdir()] == ["precious"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_log_driver_and_traffic_are_killed_and_all_views_are_right(tmp_path):
    """Then it goes on in the same folder, is interrupted, and goes on again."""
    folder = tmp_path / "demo"
    with demo("--seconds", 120, "--data", folder) as run:
        run.wait_for("headlines")
        for number, victim in enumerate(("log", "traffic", "application"), start=1):
            os.kill(run.wait_for(victim)["pid"], signal.SIGKILL)
            run.wait_for("restart", number)
        family = run.family()
        assert_proved(run)
    wait_gone(family)
    assert_large_orders_are_there_once(folder)
    with demo("--data", folder) as run:
        assert len(run.wait_for("left")["lines"]) > 1, "there is something to see at once"
        run.wait_for("headlines")
        family = run.family()
        run.process.send_signal(signal.SIGINT)
        run.wait_for("verifying")
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130, run.story()
        assert run.events("interrupted") and not run.events("table")
    wait_gone(family)
    with demo("--seconds", 5, "--data", folder) as run:
        assert_proved(run)
    assert_large_orders_are_there_once(folder)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_customers_in_a_postgresql_that_is_killed_are_followed_to_the_last(tmp_path):
    """Then it goes on in the same folder, with the same customers; one of SQLite is not the same shop."""
    folder = tmp_path / "demo"
    with demo("--rate", 100, "--seconds", 30, "--postgres", "--data", folder) as run:
        run.wait_for("headlines")
        os.kill(run.wait_for("database")["pid"], signal.SIGKILL)
        assert "PostgreSQL died and was restarted" in run.wait_for("restart")["text"]
        family = run.family()
        assert_proved(run)
    wait_gone(family)
    refused = subprocess.run([*COMMAND, "--data", folder], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2 and "customers are in PostgreSQL" in refused.stderr
    with demo("--rate", 100, "--seconds", 5, "--postgres", "--data", folder) as run:
        assert_proved(run)


def assert_large_orders_are_there_once(folder):
    log = EmbeddedLog(folder / "log")
    try:
        orders = committed(log.bootstrap, "shop.orders")
        found = Counter(each["order_id"] for each in committed(log.bootstrap, "shop.large-orders"))
    finally:
        log.end()
    soon = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 2 * 86_400))
    large = [each for each in orders if each["amount"] > 1000 and each["placed_at"] < soon]
    assert found and found == Counter(each["order_id"] for each in large)
