"""Commands and reads from many clients, while owners and broker are killed: one history for all.

Invariants: `AnswersAreLinearisable`, `AcceptedCommandsAppearOnce`, `NoBalanceIsNegative`.
"""

import random
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.crash.sourcing.linearisable import NEVER, Operation, is_linearisable
from tests.integration.sourcing.serving import ServerProcess, entities_at
from tests.unit.sourcing.accounts import Deposit, Withdraw, account_type

from headrace.errors import RetriableError
from headrace.sourcing import steps_of
from headrace.testing.broker import BrokerProcess

CLIENTS, ENTITIES = 16, 50
PATIENCE_S = 120


def model(state, operation):
    """An account: its balance and version, and what each command answers."""
    balance, version = state
    command, expected = operation.what
    if command is None:
        return [state] if operation.result == state else []
    amount = command.amount if isinstance(command, Deposit) else -command.amount
    if expected is not None and expected != version:
        after, answer = state, ("conflict", version)
    elif balance + amount < 0:
        after, answer = state, ("rejected", version)
    else:
        after = (balance + amount, version + 1)
        answer = ("accepted", version + 1)
    return [after] if operation.returned == NEVER or operation.result == answer else []


class Clients:
    """Threads that send commands and read states, and note what they saw."""

    def __init__(self, entities, seed):
        self.histories = defaultdict(list)
        self.accepted = defaultdict(set)
        self._entities = entities
        self._seed = seed
        self._lock = threading.Lock()
        self.stopping = threading.Event()

    def run(self, client):
        chance = random.Random(f"{self._seed}/{client}")
        number = 0
        while not self.stopping.is_set():
            number += 1
            entity = f"e-{chance.randrange(ENTITIES)}"
            if chance.random() < 0.1:
                self._read(entity)
            else:
                self._send(entity, f"{client}-{number}", chance)

    def _send(self, entity, command_id, chance):
        kind = chance.choice((Deposit, Withdraw))
        command = kind(chance.randrange(1, 10))
        expected = chance.choice((None, None, None, chance.randrange(5)))
        called, returned, result = time.monotonic(), NEVER, None
        while time.monotonic() < called + PATIENCE_S:
            try:
                answer = self._entities.account(entity).send_and_wait(
                    command, command_id=command_id, expected_version=expected, timeout_s=5
                )
            except RetriableError:
                continue
            returned, result = time.monotonic(), (answer.outcome, answer.version)
            break
        with self._lock:
            self.histories[entity].append(Operation(called, returned, (command, expected), result))
            if result is not None and result[0] == "accepted":
                self.accepted[entity].add(command_id)

    def _read(self, entity):
        called = time.monotonic()
        try:
            found = self._entities.account(entity).state()
        except RetriableError:
            return
        result = (found.state.balance, found.version)
        with self._lock:
            self.histories[entity].append(Operation(called, time.monotonic(), (None, None), result))

    def wait_for_more(self, count):
        """Until so many more operations are answered, however slow the machine is."""
        enough, deadline = self.answered() + count, time.monotonic() + PATIENCE_S
        while self.answered() < enough:
            assert time.monotonic() < deadline, f"fewer than {count} answers in {PATIENCE_S} s"
            time.sleep(0.02)

    def answered(self):
        with self._lock:
            return sum(each.returned != NEVER for history in self.histories.values() for each in history)


def check(clients, entities):
    kind = account_type()
    wrong = [
        entity for entity, history in clients.histories.items() if not is_linearisable(history, model, (0, 0))
    ]
    assert wrong == [], "AnswersAreLinearisable"
    for entity, ids in clients.accepted.items():
        events = entities.account(entity).history()
        counts = Counter(each.command for each in events)
        assert ids <= set(counts) and set(counts.values()) <= {1}, f"AcceptedCommandsAppearOnce: {entity}"
        assert all(step.state.balance >= 0 for step in steps_of(kind, events)), (
            f"NoBalanceIsNegative: {entity}"
        )


def campaign(tmp_path, *, kills, pause_s, answers):
    """Kills at random moments, each after so many answers since the last."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with BrokerProcess(tmp_path) as broker:
        servers = [ServerProcess(broker.bootstrap) for _ in range(2)]
        for each in servers:
            each.wait_ready()
        entities = entities_at(broker.bootstrap, {"account": account_type(partitions=2)})
        clients = Clients(entities, seed)
        with ThreadPoolExecutor(CLIENTS) as pool:
            running = [pool.submit(clients.run, each) for each in range(CLIENTS)]
            try:
                for number in range(kills):
                    clients.wait_for_more(answers)
                    time.sleep(pause_s * chance.uniform(0, 1))
                    if number % 3 == 1:
                        broker.kill()
                        broker.start()
                    else:
                        victim = chance.randrange(len(servers))
                        servers[victim].kill()
                        servers[victim] = ServerProcess(broker.bootstrap)
                clients.wait_for_more(answers)
            finally:
                clients.stopping.set()
            for each in running:
                each.result()
        check(clients, entities)
        entities.close()
        for each in servers:
            each.kill()
    print(f"{clients.answered()} operations, {kills} kills")


def test_answers_are_linearisable_while_owners_and_broker_are_killed(tmp_path):
    campaign(tmp_path, kills=2, pause_s=0.5, answers=50)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_answers_are_linearisable_through_twenty_kills(tmp_path):
    campaign(tmp_path, kills=20, pause_s=10, answers=50)
