"""What the tests of several machines share: drivers, steady traffic, and a plain reader of topics."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from headrace.testing.machines import Machine

TIMEOUT_S = 900  # a machine that many share takes ten times as long
HEADRACE = str(Path(sys.executable).with_name("headrace"))


class Driver:
    """`headrace run` on a machine of its own, or in a folder of its own."""

    def __init__(
        self,
        folder: Path,
        file: str | Path,
        bootstrap: str,
        *options: str,
        machine: Machine | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir()
        self.messages = folder / "messages"
        command = [HEADRACE, "run", str(file), "--bootstrap", bootstrap, "--no-http", "--json", *options]
        environment = {**os.environ, **(env or {})}
        with self.messages.open("wb") as out:
            if machine:
                self.process = machine.popen(command, environment, out)
            else:
                self.process = subprocess.Popen(
                    command, cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True
                )

    @property
    def said(self) -> str:
        return self.messages.read_text(errors="replace")

    def batches(self) -> list[dict[str, Any]]:
        lines = self.said.splitlines()
        return [found for each in lines if each.startswith("{") and "batch_id" in (found := json.loads(each))]

    def records(self) -> int:
        """How many records the batches of this driver have read."""
        return sum(each["records"] for each in self.batches())

    def progress(self) -> Counter[str]:
        """How many batches of each query have read anything."""
        return Counter(each["query"] for each in self.batches() if each["records"])

    def wait_for_records(self, count: int) -> None:
        """Until the batches of this driver have read so many records."""
        wait_until(lambda: self.records() >= count, self, f"{count} records")

    def failures(self) -> list[str]:
        """The queries that failed and were restarted, with their reasons."""
        return re.findall(r".*will be restarted.*", self.said)

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """Ends it and its Java at once; harmless when it has ended."""
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()

    def wait(self, what: str = "the end of the driver") -> int:
        """Its exit code, once it has ended by itself."""
        try:
            return self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"waited {TIMEOUT_S} s for {what}:\n{self.last_words}") from None

    @property
    def last_words(self) -> str:
        return self.said[-20_000:]


def wait_until(condition: Callable[[], Any], driver: Driver, what: str) -> None:
    """Until the condition is true, as long as the driver lives; `what` it is, for the message."""
    wait_for(lambda: "" if condition() else what, driver)


def wait_for(missing: Callable[[], str], driver: Driver) -> None:
    """Until nothing is missing, as long as the driver lives."""
    deadline = time.monotonic() + TIMEOUT_S
    while what := missing():
        code = driver.process.poll()
        assert code is None, f"the driver ended with {code}, waiting for {what}:\n{driver.last_words}"
        assert time.monotonic() < deadline, f"waited {TIMEOUT_S} s for {what}:\n{driver.last_words}"
        time.sleep(0.2)


class Progress:
    """Watches a driver until it is closed: what is the longest time in which it read nothing?"""

    def __init__(self, driver: Driver) -> None:
        self.longest_s = 0.0
        self._driver = driver
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Progress":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def _watch(self) -> None:
        before, since = self._driver.records(), time.monotonic()
        while not self._closed.wait(0.1):
            found, now = self._driver.records(), time.monotonic()
            self.longest_s = max(self.longest_s, now - since)
            if found != before:
                before, since = found, now


class Traffic:
    """Sends keys and values until it is closed, all acknowledged; brokers may come and go meanwhile."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        records: Iterator[tuple[bytes | None, bytes | None]],
        *,
        per_second: int,
    ) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "delivery.timeout.ms": 600_000,
                "reconnect.backoff.max.ms": 300,
                "log_level": 0,
            }
        )
        self._topic, self._records, self._per_second = topic, records, per_second
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Returns when everything is acknowledged; harmless when repeated."""
        self._closed.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), f"waited {TIMEOUT_S} s for the last record for {self._topic}"
        left = self._producer.flush(TIMEOUT_S)
        assert left == 0, f"waited {TIMEOUT_S} s for acknowledgements of {left} records of {self._topic}"

    def _send(self) -> None:
        while not self._closed.wait(0.05):
            for _ in range(max(1, self._per_second // 20)):
                key, value = next(self._records)
                self._producer.produce(self._topic, value, key)
            self._producer.poll(0)


def committed(bootstrap: str, topic: str) -> list[Message]:
    """The committed records of a topic as another client reads them, partition by partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "log_level": 0}
    consumer = Consumer({**settings, "enable.partition.eof": True, "isolation.level": "read_committed"})
    found: list[Message] = []
    partitions = consumer.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{topic} cannot be read"
        if message.error() is None:
            found.append(message)
        else:
            ended.add(message.partition())
    consumer.close()
    return found


def verify(file: str | Path, bootstrap: str, data: str | Path, folder: Path) -> str:
    """What `headrace verify` says, which must find everything equal."""
    command = [HEADRACE, "verify", str(file), "--data", str(data), "--bootstrap", bootstrap]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout
