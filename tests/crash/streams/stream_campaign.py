"""Runs lives of the driver, with a producer beside them, and holds what they left against the log."""

import contextlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from stream_application import TOPIC
from stream_worker_daemon import order_death

from headrace.client import EARLIEST, LATEST, Connection, RawFetcher, producer
from headrace.records import decode_columns

DRIVER = Path(__file__).with_name("stream_driver.py")
PLACES = ("north", "south", "east", "west", "middle")
TIMEOUT_S = 300


class Traffic(threading.Thread):
    """Writes readings until told to end, through whatever dies: in time, late, malformed, far ahead.

    What was sent is of no interest: what counts is what came to be on the log.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(daemon=True)
        self._random = random.Random(seed)
        self._address = ""
        self._there = threading.Event()
        self._ended = threading.Event()
        self._number = 0
        self._start_ms = int(time.time() * 1000) - 600_000

    def to(self, address: str) -> None:
        self._address = address
        self._there.set()

    def away(self) -> None:
        self._there.clear()

    def end(self) -> None:
        self._ended.set()
        self._there.set()
        self.join(TIMEOUT_S + 30)
        assert not self.is_alive()

    def run(self) -> None:
        while not self._ended.is_set():
            self._there.wait()
            address = self._address
            sender = producer(Connection(bootstrap_servers=address), message_timeout_ms=1000 * TIMEOUT_S)
            while self._there.is_set() and self._address == address and not self._ended.wait(0.02):
                self._send(sender)
            # At the end nothing may be under way that the log would get behind everybody's back.
            sender.flush(TIMEOUT_S if self._ended.is_set() else 2)

    def _send(self, sender: Any) -> None:
        for _ in range(5):
            self._number += 1
            try:
                self._produce(sender)
            except (BufferError, KafkaException):
                return
            sender.poll(0)

    def _produce(self, sender: Any) -> None:
        sender.produce(TOPIC, self._value(), partition=self._random.randrange(3))

    def _value(self) -> bytes:
        chance = self._random.random()
        if chance < 0.01:
            return b'{"id": '
        at = self._start_ms + self._number * 20 - self._random.randrange(1500)
        if chance < 0.02:
            at += 100 * 24 * 3_600_000
        elif chance < 0.06:
            at -= self._random.choice((6_000, 15_000, 60_000))
        amount = round(self._random.uniform(0, 1000), 2)
        reading = {"id": self._number, "place": self._random.choice(PLACES), "amount": amount, "at": at}
        return json.dumps(reading).encode()


class Life:
    """One process of the driver; `lines` are what it said so far."""

    def __init__(
        self,
        data: Path,
        stores: dict[str, str],
        application: str = "stream_application",
        *,
        sinks: str = "driver",
    ) -> None:
        self.messages = data.with_name("driver.messages")
        self._deaths = data.with_name("deaths")
        self._family: dict[int, str] = {}
        order = {
            "data": str(data),
            "stores": stores,
            "deaths": str(self._deaths),
            "application": application,
            "sinks": sinks,
        }
        self._process = subprocess.Popen(
            [sys.executable, DRIVER, json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.messages.open("ab"),
            text=True,
        )
        self.lines: list[dict[str, Any]] = []
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._queue.put(json.loads(line))
        self._queue.put(None)

    def wait_for(self, field: str) -> dict[str, Any]:
        """The next line that has the field."""
        for line in self.said():
            if field in line:
                return line
        raise AssertionError(f"it ended before it said {field}; {self._told()}")

    def said(self) -> Iterator[dict[str, Any]]:
        """Line by line until it ends."""
        while (line := self._next()) is not None:
            self.lines.append(line)
            yield line

    def wait_batch(self) -> None:
        """The next batch that it has not told of yet."""
        told = self._queue.qsize()
        for line in self.said():
            told -= 1
            if told < 0 and "batch" in line:
                return
        raise AssertionError(f"it ended before its next batch; {self._told()}")

    def _next(self) -> dict[str, Any] | None:
        try:
            return self._queue.get(timeout=TIMEOUT_S)
        except queue.Empty:
            os.kill(self.pid, signal.SIGUSR1)  # it writes where it stands,
            with contextlib.suppress(subprocess.TimeoutExpired):  # for which it gets a moment
                self._process.wait(2)
            raise AssertionError(f"silent for {TIMEOUT_S} s; {self._told()}") from None

    def die(self) -> None:
        """Kills it, and waits until it is dead."""
        self._note_family()
        kill(self.pid)
        self._wait_dead()

    def die_at(self, step: str, *, after: int) -> None:
        """Has it killed at the step, once that many batches are done, and waits until it is dead."""
        self._tell({"die": step, "after": after})
        self._wait_dead()

    def kill_worker_at(self, step: str) -> None:
        """Waits until a Python worker has died at the step."""
        order = order_death(self._deaths, step)
        deadline = time.monotonic() + TIMEOUT_S
        while order.exists():
            assert time.monotonic() < deadline, f"no worker reached {step!r}; {self._told()}"
            time.sleep(0.01)  # it says nothing of its death

    def _wait_dead(self) -> None:
        """And its log, its JVM and its workers with it."""
        for _ in self.said():
            self._note_family()
        assert self._process.wait(TIMEOUT_S) == -signal.SIGKILL, self._told()
        deadline = time.monotonic() + TIMEOUT_S
        while left := [pid for pid, began in self._family.items() if _command(pid) and _began(pid) == began]:
            assert time.monotonic() < deadline, f"its children live on: {[_command(pid) for pid in left]}"
            time.sleep(0.05)  # who is not our child cannot be waited for

    def _note_family(self) -> None:
        self._family.update({pid: _began(pid) for pid in _descendants(self.pid)})

    def _tell(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def prove(self, ends: dict[str, dict[int, int]]) -> dict[str, dict[str, Any]]:
        """What it found of each view, once they reflect everything before `ends`."""
        self._tell({"prove": ends})
        verdicts = {}
        for line in self.said():
            if "view" in line:
                verdicts[line["view"]] = line
            if "proved" in line:
                return verdicts
        raise AssertionError(f"it ended before it had proved its views; {self._told()}")

    def end(self) -> None:
        """Lets it end by itself, which it must do well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(TIMEOUT_S) == 0, self._told()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def _told(self) -> str:
        return f"{self.lines[-3:]}\n{self.messages.read_text(errors='replace')[-3000:]}"

    def wait_workers(self) -> list[int]:
        """The Python workers of its Spark, of which there is one whenever a batch has records."""
        deadline = time.monotonic() + TIMEOUT_S
        while not (found := self._workers()):
            assert time.monotonic() < deadline, f"no Python worker; {self._told()}"
            time.sleep(0.05)
        return found

    def _workers(self) -> list[int]:
        """Those forked by the daemon that its JVM started.

        Never the daemon: its workers would live on, and serve, as nobody's descendants.
        """
        return [pid for pid in _descendants(self.pid) if _is_of_workers(pid) and _is_of_workers(_parent(pid))]


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:  # it has just ended
        return found
    for task in tasks:
        try:
            children = [int(each) for each in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *_descendants(child)]
    return found


def _began(pid: int) -> str:
    """When the process began, which tells it from a later one that was given its number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _is_of_workers(pid: int) -> bool:
    """Whether it is a Python worker, or the daemon that forks them, whose command they share."""
    return _command(pid).rstrip().endswith("worker_daemon pyspark.worker")


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def kill(pid: int) -> bool:
    """Whether there was such a process to kill."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


# --- a campaign -----------------------------------------------------------------------------------


@contextlib.contextmanager
def outlived(
    begin: Callable[[], Life], traffic: Traffic, kills: Sequence[str], seed: int
) -> Iterator[tuple[Life, Connection]]:
    """Lives of the driver one after the other, until all `kills` are done: the last one, and its log.

    A kill is "driver", "worker" or "broker" (at a random moment), the name of a step at
    which the driver dies, or "worker at STEP". Whatever the driver outlives happens in one life.
    """
    print("seed", seed, "kills", kills)
    chance, waiting = random.Random(seed), list(kills)
    traffic.start()
    life = None
    try:
        while True:
            life = begin()
            told = life.wait_for("bootstrap")
            traffic.to(told["bootstrap"])
            if _is_outlived(life, told["broker"], waiting, chance):
                break
            traffic.away()
        traffic.end()
        yield life, Connection(bootstrap_servers=told["bootstrap"])
        life.end()
    finally:
        if life is not None:
            life.kill()
        traffic.end()


def _is_outlived(life: Life, broker: int, waiting: list[str], chance: random.Random) -> bool:
    """Takes kills off the list and does them; False as soon as the driver is dead."""
    life.wait_for("batch")
    while waiting:
        print(len(waiting), "kills to do", flush=True)
        match waiting.pop(0).split(" at "):
            case ["worker"]:
                while not kill(chance.choice(life.wait_workers())):
                    pass  # it had just ended by itself
            case ["worker", step]:
                life.kill_worker_at(step)
            case ["broker"]:
                broker = _kill_broker(life, broker)
            case ["driver"]:
                for _ in range(chance.randrange(3)):
                    life.wait_for("batch")
                life.die()
                return False
            case [step]:
                life.die_at(step, after=chance.randrange(3))
                return False
        life.wait_batch()
    return True


def _kill_broker(life: Life, broker: int) -> int:
    """The number of its successor."""
    assert kill(broker)
    while "the log died" not in (said := life.wait_for("message")["message"]):
        pass
    return int(said.rpartition("process ")[2].rstrip(")"))


# --- what is on the log ---------------------------------------------------------------------------


def records_on(connection: Connection, topic: str) -> list[dict[str, Any]]:
    """All committed records of a topic, in order within their partition, with `partition`."""
    found = []
    with RawFetcher(connection) as fetcher:
        starts, ends = fetcher.offsets(topic, EARLIEST), fetcher.offsets(topic, LATEST)
        for partition, first in starts.items():
            for data in fetcher.fetch(topic, partition, first, ends[partition]):
                rows = decode_columns(data).to_pylist()
                found += [{**row, "partition": partition} for row in rows]
    return found


def headers_of(record: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: each["value"].decode() for each in record["headers"] or ()}


def readable(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records that must become rows."""
    found = []
    for record in records:
        try:
            fields = json.loads(record["value"])
        except ValueError:
            continue
        if fields["at"] < record["timestamp"].timestamp() * 1000 + 3_600_000:
            found.append(fields)
    return found


def check(connection: Connection, verdicts: dict[str, dict[str, Any]], views: set[str]) -> dict[str, int]:
    """EachRecordOnceInSink, ViewEqualsRecomputation, CountersBalance; returns what was counted."""
    assert verdicts.keys() == views
    for verdict in verdicts.values():
        assert not verdict["differences"] and verdict["rows"], f"ViewEqualsRecomputation: {verdict}"
        assert not verdict.get("failure"), verdict
    source = records_on(connection, TOPIC)
    rows = readable(source)
    for verdict in verdicts.values():
        assert sum(verdict["counters"].values()) == len(source), (
            f"CountersBalance: {verdict} of {len(source)}"
        )
    large = [json.loads(each["value"]) for each in records_on(connection, "large")]
    wanted = Counter(row["id"] for row in rows if row["amount"] > 900)
    assert Counter(row["id"] for row in large) == wanted, "EachRecordOnceInSink: large"
    dead = [headers_of(each) for each in records_on(connection, "crash.dead")]
    places = Counter((each["headrace.dead.partition"], each["headrace.dead.offset"]) for each in dead)
    assert set(places.values()) <= {1} and len(places) == len(source) - len(rows), (
        "EachRecordOnceInSink: dead"
    )
    late = [headers_of(each) for each in records_on(connection, "crash.late")]
    _check_late(late, verdicts)
    check_changelog(connection, "maxima")
    counters = Counter(verdicts["per_second"]["counters"])
    return {"records": len(source), "late": len(late), **counters}


def _check_late(late: list[dict[str, str]], verdicts: dict[str, dict[str, Any]]) -> None:
    whole = [each for each in late if each["headrace.late.reason"] == "late"]
    fields = ("view", "partition", "offset")
    places = Counter(tuple(each[f"headrace.late.{name}"] for name in fields) for each in whole)
    assert set(places.values()) <= {1}, "EachRecordOnceInSink: late"
    for name, verdict in verdicts.items():
        of_view = [each for each in late if each["headrace.late.view"] == name]
        rows = sum(int(each.get("headrace.late.rows", 1)) for each in of_view)
        assert rows == verdict["counters"].get("dropped", 0), f"EachRecordOnceInSink: late records of {name}"


def check_changelog(connection: Connection, topic: str) -> None:
    """Each change of a key begins where the one before it ended."""
    last: dict[bytes, Any] = {}
    for record in records_on(connection, topic):
        if record["key"] is None or record["value"] is None:
            continue
        change = json.loads(record["value"])
        if "after" not in change:
            continue
        assert change["before"] == last.get(record["key"]), f"EachRecordOnceInSink: {topic} {change}"
        if change["kind"] != "retract":  # the first half of a correction's pair, which names the row again
            last[record["key"]] = change["after"]
    assert last


def log_ends(connection: Connection, topics: tuple[str, ...] = (TOPIC,)) -> dict[str, dict[int, int]]:
    with RawFetcher(connection) as fetcher:
        return {topic: fetcher.offsets(topic, LATEST) for topic in topics}
