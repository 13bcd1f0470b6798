"""Clients of accounts, what they saw, and what an account may answer.

A client writes each operation to a file as a line of JSON, in nanoseconds of the machine's monotonic
clock, which all processes share. The same lines go to both judges: `linearisable.py`, and Porcupine
(`judge/main.go`). As a program, this module is one client: `BOOTSTRAP SEED NUMBER FILE`, until its
standard input is closed.
"""

import json
import random
import sys
import threading
import time
from collections import defaultdict

from tests.crash.sourcing.linearisable import NEVER, Operation
from tests.integration.sourcing.serving import entities_at
from tests.unit.sourcing.accounts import Deposit, Withdraw, account_type

from headrace.errors import RetriableError

ENTITIES, PARTITIONS = 50, 2
PATIENCE_S = 120


def model(state, operation):
    """An account: its balance and version, and what each command answers."""
    balance, version = state
    amount, expected = operation.what
    if amount is None:
        return [state] if operation.result == state else []
    if expected is not None and expected != version:
        after, answer = state, ("conflict", version)
    elif balance + amount < 0:
        after, answer = state, ("rejected", version)
    else:
        after = (balance + amount, version + 1)
        answer = ("accepted", version + 1)
    return [after] if operation.returned == NEVER or operation.result == answer else []


class Client:
    """Sends commands and reads states until it is stopped, and notes what it saw."""

    def __init__(self, entities, seed, number, path):
        self._entities = entities
        self._chance = random.Random(f"{seed}/{number}")
        self._number = number
        self._path = path

    def run(self, stopping):
        with self._path.open("w") as file:
            number = 0
            while not stopping.is_set():
                number += 1
                entity = f"e-{self._chance.randrange(ENTITIES)}"
                is_read = self._chance.random() < 0.1
                found = self._read(entity) if is_read else self._send(entity, f"{self._number}-{number}")
                if found is not None:
                    file.write(json.dumps({"client": self._number, "entity": entity, **found}) + "\n")
                    file.flush()

    def _send(self, entity, command_id):
        kind = self._chance.choice((Deposit, Withdraw))
        command = kind(self._chance.randrange(1, 10))
        expected = self._chance.choice((None, None, None, self._chance.randrange(5)))
        amount = command.amount if kind is Deposit else -command.amount
        called = time.monotonic_ns()
        found = {"called": called, "returned": None, "id": command_id, "amount": amount, "expected": expected}
        while time.monotonic_ns() < called + PATIENCE_S * 1_000_000_000:
            try:
                answer = self._entities.account(entity).send_and_wait(
                    command, command_id=command_id, expected_version=expected, timeout_s=5
                )
            except RetriableError:
                continue
            result = {"outcome": answer.outcome, "version": answer.version}
            return {**found, "returned": time.monotonic_ns(), **result}
        return found

    def _read(self, entity):
        called = time.monotonic_ns()
        try:
            seen = self._entities.account(entity).state()
        except RetriableError:
            return None
        result = {"balance": seen.state.balance, "version": seen.version}
        return {"called": called, "returned": time.monotonic_ns(), "amount": None, **result}


def read_histories(paths):
    """The lines of all clients, by entity."""
    histories = defaultdict(list)
    for path in paths:
        for line in path.read_text().splitlines():
            found = json.loads(line)
            histories[found["entity"]].append(found)
    return histories


def operation_of(line):
    """A line as an operation of the model."""
    returned = NEVER if line["returned"] is None else line["returned"]
    if line["amount"] is None:
        return Operation(line["called"], returned, (None, None), (line["balance"], line["version"]))
    result = None if returned == NEVER else (line["outcome"], line["version"])
    return Operation(line["called"], returned, (line["amount"], line["expected"]), result)


def _main(bootstrap, seed, number, path):
    from pathlib import Path

    stopping = threading.Event()

    def wait_for_end():
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    entities = entities_at(bootstrap, {"account": account_type(partitions=PARTITIONS)})
    Client(entities, int(seed), int(number), Path(path)).run(stopping)
    entities.close()


if __name__ == "__main__":
    _main(*sys.argv[1:])
