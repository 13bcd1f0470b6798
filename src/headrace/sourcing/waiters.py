"""Who waits for the answers to which commands: threads, and coroutines of any loop."""

import asyncio
import threading
from collections.abc import Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

from headrace.errors import HeadraceError
from headrace.sourcing.records import Answer

__all__ = ["Outcome", "Place", "Waiter", "Waiters"]

Place = tuple[str, str]  # the entity, and the id of the command
Waiter = Future[Answer] | asyncio.Future[Answer]
Outcome = Answer | HeadraceError


class Waiters:
    """Any number may wait for one command. Safe for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[str, list[tuple[str, Waiter]]] = {}

    def __len__(self) -> int:
        """How many commands somebody waits for, roughly: several may have the same id."""
        return len(self._by_id)

    def add(self, place: Place, waiter: Waiter) -> None:
        entity, command = place
        with self._lock:
            self._by_id.setdefault(command, []).append((entity, waiter))

    def drop(self, place: Place, waiter: Waiter) -> None:
        """It does not wait any more; others for the same command still do."""
        _, command = place
        with self._lock:
            if command in self._by_id:
                self._keep(command, [each for each in self._by_id[command] if each[1] is not waiter])

    def any_for(self, command: str) -> bool:
        """Whether somebody waits for a command with this id, of whatever entity."""
        return command in self._by_id

    def settle(self, outcomes: Iterable[tuple[Place, Outcome]]) -> None:
        """Wakes those who wait; the coroutines of a loop all at once."""
        _wake([(waiter, outcome) for place, outcome in outcomes for waiter in self._taken(place)])

    def settle_all(self, outcome: Outcome) -> None:
        with self._lock:
            left, self._by_id = self._by_id, {}
        _wake([(waiter, outcome) for several in left.values() for _, waiter in several])

    def _taken(self, place: Place) -> list[Waiter]:
        entity, command = place
        with self._lock:
            found = self._by_id.get(command, ())
            taken = [waiter for of, waiter in found if of == entity]
            if taken:
                self._keep(command, [each for each in found if each[0] != entity])
        return taken

    def _keep(self, command: str, left: list[tuple[str, Waiter]]) -> None:
        if left:
            self._by_id[command] = left
        else:
            del self._by_id[command]


def _wake(settled: Iterable[tuple[Waiter, Outcome]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Waiter, Outcome]]] = {}
    for waiter, outcome in settled:
        if isinstance(waiter, Future):
            _settle(waiter, outcome)
        else:
            by_loop.setdefault(waiter.get_loop(), []).append((waiter, outcome))
    for loop, several in by_loop.items():
        with suppress(RuntimeError):  # it is closed, so nobody waits in it
            loop.call_soon_threadsafe(_settle_each, several)


def _settle_each(several: Iterable[tuple[Waiter, Outcome]]) -> None:
    for waiter, outcome in several:
        _settle(waiter, outcome)


def _settle(waiter: Waiter, outcome: Outcome) -> None:
    with suppress(InvalidStateError, asyncio.InvalidStateError):  # cancelled meanwhile
        if isinstance(outcome, Answer):
            waiter.set_result(outcome)
        else:
            waiter.set_exception(outcome)
