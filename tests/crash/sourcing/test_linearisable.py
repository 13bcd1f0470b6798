"""Commands and reads from many clients, while owners and broker are killed: one history for all.

Invariants: `AnswersAreLinearisable`, `AcceptedCommandsAppearOnce`, `NoBalanceIsNegative`.
"""

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.crash.sourcing import account_history
from tests.crash.sourcing.account_history import PARTITIONS, PATIENCE_S, Client, model, operation_of
from tests.crash.sourcing.linearisable import is_linearisable
from tests.crash.sourcing.porcupine import build_judge, judged
from tests.integration.sourcing.serving import ServerProcess, entities_at
from tests.unit.sourcing.accounts import account_type

from headrace.sourcing import steps_of
from headrace.sourcing.topics import partition_of
from headrace.testing.broker import BrokerProcess

CLIENTS = 16


class Histories:
    """What the clients have written so far."""

    def __init__(self, folder):
        folder.mkdir()
        self.paths = [folder / f"{number}.jsonl" for number in range(CLIENTS)]

    def read(self):
        return account_history.read_histories([each for each in self.paths if each.exists()])

    def wait_for_more(self, count, partitions=()):
        """Until that many operations begun from now on are answered, and one in each of these partitions."""
        began, deadline = time.monotonic_ns(), time.monotonic() + PATIENCE_S
        while True:
            answered = Counter(
                partition_of(entity, PARTITIONS)
                for entity, lines in self.read().items()
                for each in lines
                if each["called"] > began and each["returned"] is not None and each["amount"] is not None
            )
            if answered.total() >= count and all(answered[each] for each in partitions):
                return
            assert time.monotonic() < deadline, f"{dict(answered)} instead of {count} answers"
            time.sleep(0.1)


@contextlib.contextmanager
def threads(entities, seed, histories, _bootstrap):
    """The clients as threads of this process."""
    stopping = threading.Event()
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [Client(entities, seed, number, path) for number, path in enumerate(histories.paths)]
        running = [pool.submit(each.run, stopping) for each in clients]
        try:
            yield
        finally:
            stopping.set()
        for each in running:
            each.result()


@contextlib.contextmanager
def processes(_entities, seed, histories, bootstrap):
    """The clients as a process each."""
    program = [sys.executable, "-m", account_history.__name__, bootstrap, str(seed)]
    running = [
        subprocess.Popen([*program, str(number), str(path)], stdin=subprocess.PIPE)
        for number, path in enumerate(histories.paths)
    ]
    try:
        yield
    finally:
        for each in running:
            each.stdin.close()
        codes = [each.wait(2 * PATIENCE_S) for each in running]
    assert codes == [0] * CLIENTS


def check(histories, entities):
    found = histories.read()
    wrong = [
        entity
        for entity, lines in found.items()
        if not is_linearisable([operation_of(each) for each in lines], model, (0, 0))
    ]
    assert wrong == [], "AnswersAreLinearisable"
    kind = account_type()
    for entity, lines in found.items():
        accepted = {each["id"] for each in lines if each.get("outcome") == "accepted"}
        events = entities.account(entity).history()
        counts = Counter(each.command for each in events)
        assert accepted <= set(counts), f"AcceptedCommandsAppearOnce: {entity}"
        assert set(counts.values()) <= {1}, f"AcceptedCommandsAppearOnce: {entity}"
        assert all(step.state.balance >= 0 for step in steps_of(kind, events)), (
            f"NoBalanceIsNegative: {entity}"
        )


class Disturber:
    """Kills owners and the broker, and suspends owners until another has taken over."""

    def __init__(self, broker, chance):
        self._broker = broker
        self._chance = chance
        self.servers = [ServerProcess(broker.bootstrap) for _ in range(2)]
        for each in self.servers:
            each.wait_ready()

    def kill(self, number):
        """The broker each third time, else one of the owners."""
        if number % 3 == 1:
            self._broker.kill()
            self._broker.start()
        else:
            victim = self._chance.randrange(len(self.servers))
            self.servers[victim].kill()
            self.servers[victim] = ServerProcess(self._broker.bootstrap)

    def suspend(self, histories):
        """One owner stands still (SIGSTOP) until the other serves every partition; then it goes on."""
        victim = self._chance.choice(self.servers)
        victim.pause()
        try:
            histories.wait_for_more(1, partitions=range(PARTITIONS))
        finally:
            victim.resume()

    def close(self):
        for each in self.servers:
            each.kill()


def campaign(tmp_path, clients, *, kills, pause_s, answers, suspensions=0):
    """Kills at random moments, each after so many answers since the last; the recorded histories."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    histories = Histories(tmp_path / "clients")
    suspended = set(chance.sample(range(kills), suspensions))
    with BrokerProcess(tmp_path / "log") as broker, contextlib.ExitStack() as ending:
        disturber = Disturber(broker, chance)
        ending.callback(disturber.close)
        entities = entities_at(broker.bootstrap, {"account": account_type(partitions=PARTITIONS)})
        ending.callback(entities.close)
        with clients(entities, seed, histories, broker.bootstrap):
            for number in range(kills):
                histories.wait_for_more(answers)
                time.sleep(pause_s * chance.uniform(0, 1))
                disturber.kill(number)
                if number in suspended:
                    histories.wait_for_more(answers)
                    disturber.suspend(histories)
            histories.wait_for_more(answers)
        check(histories, entities)
    operations = sum(len(each) for each in histories.read().values())
    print(f"{operations} operations, {kills} kills, {suspensions} suspended owners")
    return histories


def test_answers_are_linearisable_while_owners_and_broker_are_killed(tmp_path):
    campaign(tmp_path, threads, kills=2, pause_s=0.5, answers=50)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_porcupine_finds_answers_of_client_processes_linearisable_through_twenty_kills(tmp_path):
    judge = build_judge(tmp_path)
    histories = campaign(tmp_path, processes, kills=20, pause_s=3, answers=50, suspensions=5)
    lines = [each for found in histories.read().values() for each in found]
    verdict = judged(judge, lines)
    print(verdict)
    assert verdict["operations"] == len(lines)
    assert verdict["wrong"] == verdict["undecided"] == [], "AnswersAreLinearisable"
