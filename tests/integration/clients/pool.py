"""The clients of a test run, and names nobody else uses."""

import itertools
import uuid
from pathlib import Path

import pytest

from clients.launch import ClientUnavailable, start_client
from clients.remote import RemoteDriver

_numbers = itertools.count()


def fresh(kind: str) -> str:
    """A name that no other test, process or run uses."""
    return f"{kind}-{next(_numbers)}-{uuid.uuid4().hex[:8]}"


class ClientPool:
    """One process a client, started when first asked for and shared by all tests of a target."""

    def __init__(self, bootstrap: str, logs: Path) -> None:
        self._bootstrap = bootstrap
        self._logs = logs
        self._clients: dict[str, RemoteDriver] = {}

    def __getitem__(self, name: str) -> RemoteDriver:
        client = self._clients.get(name)
        if client is None or not client.process.alive:
            self._clients[name] = client = self.start(name)
        return client

    def start(self, name: str) -> RemoteDriver:
        """A process of its own, for a test that will kill it."""
        try:
            return start_client(name, self._bootstrap, self._logs / f"{name}.log")
        except ClientUnavailable as error:
            pytest.skip(str(error))

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
