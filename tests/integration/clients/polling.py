"""A group member that polls by itself, over any Python client.

Rebalances need every member to poll, so each has a thread; commits and the end
are carried out by that thread, since most clients allow one thread a consumer.
"""

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from clients.driver import DriverError, MemberState, Record

POLL_S = 0.1


class Consumer(ABC):
    """The few calls of a client's consumer that a member or a reader needs."""

    rebalances = 0
    revoked: frozenset[tuple[str, int]] = frozenset()

    @abstractmethod
    def poll(self, timeout_s: float) -> list[Record]: ...

    @abstractmethod
    def assigned(self) -> frozenset[tuple[str, int]]: ...

    @abstractmethod
    def commit(self, topic: str, offsets: Mapping[int, int]) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


def read_exactly(consumer: Consumer, count: int, timeout_s: float) -> list[Record]:
    """Poll until `count` records came, then close; one too many, or too few in time, is an error."""
    found: list[Record] = []
    deadline = time.monotonic() + timeout_s
    try:
        while len(found) < count and time.monotonic() < deadline:
            found += consumer.poll(POLL_S)
    finally:
        consumer.close()
    if len(found) != count:
        raise DriverError(-1, f"{len(found)} records came within {timeout_s} s, expected {count}")
    return found


class PollingMember:
    """Polls until closed; `state` hands out what came since it was last asked."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._records: queue.SimpleQueue[Record] = queue.SimpleQueue()
        self._tasks: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._error: str | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._work()
            except Exception as error:
                self._error = f"{type(error).__name__}: {error}"
                time.sleep(POLL_S)

    def _work(self) -> None:
        while not self._tasks.empty():
            task, outcome = self._tasks.get()
            try:
                outcome.set_result(task())
            except Exception as error:
                outcome.set_exception(error)
        if self._closed.is_set():
            return
        for record in self._consumer.poll(POLL_S):
            self._records.put(record)

    def _carry_out(self, task: Callable[[], Any]) -> Any:
        outcome: Future[Any] = Future()
        self._tasks.put((task, outcome))
        return outcome.result(30)

    def state(self) -> MemberState:
        records = []
        while not self._records.empty():
            records.append(self._records.get())
        assigned = self._carry_out(self._consumer.assigned)
        return MemberState(
            assigned=assigned,
            revoked=self._consumer.revoked,
            rebalances=self._consumer.rebalances,
            records=tuple(records),
            error=self._error,
        )

    def commit(self, topic: str, offsets: Mapping[int, int]) -> None:
        self._carry_out(lambda: self._consumer.commit(topic, offsets))

    def close(self) -> None:
        self._carry_out(self._end)
        self._thread.join(15)

    def _end(self) -> None:
        self._consumer.close()
        self._closed.set()


class Members:
    """The members a driver has opened, by handle."""

    def __init__(self) -> None:
        self._members: dict[int, PollingMember] = {}
        self._opened = 0

    def open(self, consumer: Consumer) -> int:
        self._opened += 1
        handle = self._opened
        self._members[handle] = PollingMember(consumer)
        return handle

    def __getitem__(self, handle: int) -> PollingMember:
        return self._members[handle]

    def close(self, handle: int) -> None:
        self._members.pop(handle).close()

    def close_all(self) -> None:
        for handle in list(self._members):
            self.close(handle)
