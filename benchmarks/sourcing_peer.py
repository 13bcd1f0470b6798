"""The same accounts with the eventsourcing library, in an environment of its own; run by `sourcing.py`.

Reads lines of JSON, `{"clients", "seconds"}`, and answers each with `{"commands", "refused", "seconds"}`.
Each client has accounts of its own, so no two commands conflict.
"""

import json
import os
import sys
import threading
import time
from uuid import NAMESPACE_URL, uuid5

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import IntegrityError, PersistenceError

ACCOUNTS_EACH = 6


class Account(Aggregate):
    def __init__(self, name: str) -> None:
        self.name = name
        self.balance = 0

    @staticmethod
    def create_id(name: str):
        return uuid5(NAMESPACE_URL, name)

    @event("Deposited")
    def deposit(self, amount: int) -> None:
        self.balance += amount


def work(application, client, deadline, done, refused):
    ids = [Account.create_id(f"{client}-{each}") for each in range(ACCOUNTS_EACH)]
    number = 0
    while time.perf_counter() < deadline:
        number += 1
        try:
            account = application.repository.get(ids[number % ACCOUNTS_EACH])
            account.deposit(1)
            application.save(account)
        except (IntegrityError, PersistenceError):
            refused[client] += 1
        else:
            done[client] += 1


def main() -> None:
    application = Application(env=dict(os.environ))
    made = set()
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        clients = asked["clients"]
        for client in set(range(clients)) - made:
            for each in range(ACCOUNTS_EACH):
                application.save(Account(f"{client}-{each}"))
            made.add(client)
        done, refused = [0] * clients, [0] * clients
        began = time.perf_counter()
        arguments = (application, began + asked["seconds"], done, refused)
        threads = [
            threading.Thread(target=work, args=(arguments[0], client, *arguments[1:]))
            for client in range(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
        print(json.dumps({"commands": sum(done), "refused": sum(refused), "seconds": seconds}), flush=True)


main()
