"""Starts the clients, disturbs them and the broker, and reads everything when all is over."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from clients.raw_transactions import RawProducer

from headrace.testing.broker import BrokerProcess
from headrace.wire import Api
from recorded.client import DERIVED, PARTITIONS, SOURCE
from recorded.history import History, history_of
from recorded.invariants import TRANSFORM_GROUP
from recorded.recorder import Event, Recorder, read_events

__all__ = ["Campaign"]

HERE = Path(__file__).parents[1]
INTEGRATION = Path(__file__).parents[3] / "integration"
PATIENCE_S = 180.0
SHORT_S, LONG_S = 0.5, 2.5
IMPATIENT = {"socket.timeout.ms": 1500}  # gives a request up while the broker is paused for long

# The old protocol of groups and the new one; the members come and go.
GROUPS = {"classic": {"session.timeout.ms": 6000}, "modern": {"group.protocol": "consumer"}}


@dataclass(slots=True)
class Client:
    """A client of the campaign, over all the processes that it has been."""

    role: str
    name: str
    settings: dict[str, object] = field(default_factory=dict)
    transactional: bool = False
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.processes[-1]


def everyone() -> list[Client]:
    members = [
        Client("member", f"{group}-{n}", {"group.id": group, **settings})
        for group, settings in GROUPS.items()
        for n in range(2)
    ]
    return [
        Client("idempotent", "i1"),
        Client("idempotent", "i2", IMPATIENT),
        Client("transactional", "t1", transactional=True),
        Client("transactional", "t2", IMPATIENT, transactional=True),
        Client("bare", "b1", {"bumps": False}, transactional=True),
        Client("bare", "b2", {"bumps": True}, transactional=True),
        Client("transformer", "x1", transactional=True),
        Client("transformer", "x2", transactional=True),
        Client("live", "committed", {"isolation.level": "read_committed"}),
        Client("live", "uncommitted", {"isolation.level": "read_uncommitted"}),
        *members,
    ]


# One of each in every sixteen disturbances; what it is called is what it is counted under.
DISTURBANCES = {
    "broker killed": 7,
    "broker killed twice": 1,
    "broker paused": 2,
    "broker paused for long": 1,
    "client killed": 3,
    "producer succeeded": 1,
    "producer paused and succeeded": 1,
}


class Campaign:
    """`disturb` as often as wanted, then `finish` for the history."""

    def __init__(self, broker: BrokerProcess, folder: Path, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._broker = broker
        self._folder = folder
        self._seed = seed
        self._choices = random.Random(seed)
        self._clients = everyone()
        self._tails: dict[Path, Tail] = {}
        self._deck: list[str] = []
        folder.mkdir()

    def start(self) -> None:
        admin = RawProducer(self._broker.port, "admin", bumps=False)
        for topic in (SOURCE, DERIVED):
            wanted = {"name": topic, "num_partitions": PARTITIONS, "replication_factor": 1, "configs": []}
            admin.request(Api.CREATE_TOPICS, 7, {"topics": [wanted]})
        admin.close()
        for client in self._clients:
            self._spawn(client)

    def _spawn(self, client: Client) -> None:
        process = f"{client.name}.{len(client.processes)}"
        job = {
            "role": client.role,
            "name": client.name,
            "process": process,
            "port": self._broker.port,
            "path": str(self._folder / f"{process}.jsonl"),
            "seed": self._seed,
            "settings": client.settings,
        }
        path = os.pathsep.join([str(HERE), str(INTEGRATION), os.environ.get("PYTHONPATH", "")])
        with (self._folder / f"{process}.stderr").open("wb") as errors:
            command = [sys.executable, "-m", "recorded.client", json.dumps(job)]
            started = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=errors)
        client.processes.append(started)

    # --- progress -------------------------------------------------------------------------------

    def _read_on(self) -> None:
        for path in self._folder.glob("*.jsonl"):
            self._tails.setdefault(path, Tail(path)).read_on()

    @property
    def transactions(self) -> int:
        """Transactions of which the end was answered."""
        self._read_on()
        return sum(tail.counts["end ok"] for tail in self._tails.values())

    def wait_for_transactions(self, count: int) -> None:
        """Until so many more have ended."""
        wanted, deadline = self.transactions + count, time.monotonic() + PATIENCE_S
        while self.transactions < wanted:
            self._restart_the_fenced()
            assert time.monotonic() < deadline, f"fewer than {count} transactions in {PATIENCE_S} s"
            time.sleep(0.02)

    def wait_for_everyone(self) -> None:
        """Until each client got something done once more."""
        self._read_on()
        before = {client.name: self._done_by(client) for client in self._clients}
        deadline = time.monotonic() + PATIENCE_S
        while late := [each.name for each in self._clients if self._done_by(each) <= before[each.name]]:
            self._restart_the_fenced()
            assert time.monotonic() < deadline, f"{late} got nothing done in {PATIENCE_S} s"
            time.sleep(0.05)
            self._read_on()

    def _done_by(self, client: Client) -> int:
        what = "end ok" if client.transactional else "poll ok" if client.role != "idempotent" else "send ok"
        mine = (tail for path, tail in self._tails.items() if path.name.startswith(f"{client.name}."))
        # Of a group whose members are many for its partitions, one may have none of them.
        if client.role == "member":
            mine = (tail for path, tail in self._tails.items() if path.name.startswith(client.name[:-1]))
        if client.role == "transformer":
            mine = (tail for path, tail in self._tails.items() if path.name.startswith("x"))
        return sum(tail.counts[what] for tail in mine)

    def _restart_the_fenced(self) -> None:
        """Whoever ended by itself was succeeded; it comes back as the newest instance."""
        for client in self._clients:
            code = client.process.poll()
            if code is None:
                continue
            assert code == 0, f"{client.name} ended with {code}:\n{self._errors_of(client)}"
            self._spawn(client)

    def _errors_of(self, client: Client) -> str:
        process = f"{client.name}.{len(client.processes) - 1}"
        return (self._folder / f"{process}.stderr").read_text(errors="replace")[-2000:]

    # --- disturbances ---------------------------------------------------------------------------

    def disturb(self, transactions: int) -> None:
        """Lets some transactions end, then does whatever is next in the shuffled deck."""
        self.wait_for_transactions(transactions)
        time.sleep(self._choices.uniform(0, 0.2))  # not a wait: the moment is to be random
        if not self._deck:
            self._deck = [name for name, count in DISTURBANCES.items() for _ in range(count)]
            self._choices.shuffle(self._deck)
        name = self._deck.pop()
        getattr(self, "_" + name.replace(" ", "_"))()
        self.counts[name] += 1

    def _broker_killed(self) -> None:
        self._broker.kill()
        self._broker.start()

    def _broker_killed_twice(self) -> None:
        self._broker_killed()
        self._broker_killed()

    def _broker_paused(self, seconds: float = SHORT_S) -> None:
        self._broker.signal(signal.SIGSTOP)
        time.sleep(seconds)  # the time for which it is paused
        self._broker.signal(signal.SIGCONT)

    def _broker_paused_for_long(self) -> None:
        self._broker_paused(LONG_S)

    def _client_killed(self) -> None:
        client = self._choices.choice([each for each in self._clients if each.role != "live"])
        client.process.kill()
        client.process.wait()
        self._spawn(client)

    def _producer_succeeded(self) -> None:
        """A second process of the same transactional id, while the first works on and is fenced."""
        client = self._choices.choice([each for each in self._clients if each.transactional])
        self._spawn(client)
        _expect_end(client.processes[-2])

    def _producer_paused_and_succeeded(self) -> None:
        """The first wakes up as a zombie, in the midst of what it did."""
        client = self._choices.choice([each for each in self._clients if each.transactional])
        former = client.process
        former.send_signal(signal.SIGSTOP)
        self._spawn(client)
        self.wait_for_transactions(5)
        former.send_signal(signal.SIGCONT)
        _expect_end(former)

    # --- when all is over -----------------------------------------------------------------------

    def finish(self) -> History:
        """Ends the clients, aborts what is open, reads the logs, and puts the history together."""
        self.wait_for_everyone()
        for client in self._clients:
            client.process.send_signal(signal.SIGTERM)
        for client in self._clients:
            _expect_end(client.process)
        recorder = Recorder(self._folder / "end.jsonl", "end")
        for client in self._clients:
            if client.transactional:
                last = RawProducer(self._broker.port, client.name, bumps=True)
                last.init()
                last.close()
        for committed in (True, False):
            recorder.ok("log", committed=committed, records=list(self._read_log(committed)))
        for group in (*GROUPS, TRANSFORM_GROUP):
            recorder.ok("offsets", group=group, offsets=self._offsets(group))
        return history_of(event for path in self._folder.glob("*.jsonl") for event in read_events(path))

    def stop(self) -> None:
        """Ends whatever still runs."""
        for client in self._clients:
            for process in client.processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def _read_log(self, committed: bool) -> Iterator[tuple[str, int, int, str]]:
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": "end",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "check.crcs": True,
            }
        )
        places = [ck.TopicPartition(topic, i, 0) for topic in (SOURCE, DERIVED) for i in range(PARTITIONS)]
        consumer.assign(places)
        ended: set[tuple[str, int]] = set()
        deadline = time.monotonic() + PATIENCE_S
        while len(ended) < len(places):
            assert time.monotonic() < deadline, f"no end of the partitions in {PATIENCE_S} s"
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    yield message.topic(), message.partition(), message.offset(), message.value().decode()
                elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                    ended.add((message.topic(), message.partition()))
        consumer.close()

    def _offsets(self, group: str) -> list[tuple[str, int, int]]:
        asked = {
            "group_id": group,
            "topics": [{"name": SOURCE, "partition_indexes": list(range(PARTITIONS))}],
        }
        admin = RawProducer(self._broker.port, "admin", bumps=False)
        answer: Any = admin.request(Api.OFFSET_FETCH, 8, {"groups": [asked], "require_stable": True})
        admin.close()
        found = answer.groups[0].topics[0].partitions
        assert all(each.error_code == 0 for each in found), f"no offsets of {group}: {answer}"
        return [(SOURCE, each.partition_index, each.committed_offset) for each in found]


def _expect_end(process: subprocess.Popen[bytes]) -> None:
    """It may take its time over what it does; one that does not end is killed, as clients are."""
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Tail:
    """Counts the events of a growing file."""

    def __init__(self, path: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._lines = path.open("rb")
        self._rest = b""

    def read_on(self) -> None:
        *lines, self._rest = (self._rest + self._lines.read()).split(b"\n")
        for line in lines:
            event: Event = json.loads(line)
            self.counts[f"{event['f']} {event['type']}"] += 1
