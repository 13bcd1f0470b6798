"""Several pieces of work taken in turns, so that what disturbs a shared machine disturbs all of them."""

import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar

import psutil

__all__ = ["Work", "in_turns"]

T = TypeVar("T")
Work = Generator[None, None, T]
"""Work that yields wherever it may be another's turn, and returns its result."""


def in_turns(works: Mapping[str, Work[T]], servers: Mapping[str, int]) -> dict[str, T]:
    """Each goes on to its next `yield`, one after the other, until all are done; their results.

    `servers` are processes, by the name of the work they serve, which run in its turns
    only: one that is asked for nothing is not idle, its compiler takes a processor from
    whoever is measured. The disk is brought to rest before every turn, or pages that one left
    unsynced would be written out in another's time.
    """
    results: dict[str, T] = {}
    waiting = dict(works)
    with _Held(servers) as held:
        while waiting:
            for name, work in tuple(waiting.items()):
                os.sync()
                with held.except_for(name):
                    try:
                        next(work)
                    except StopIteration as ended:
                        results[name] = ended.value
                        del waiting[name]
    return results


class _Held:
    """Processes that are stopped, and go on at the end of the block however it ends."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._processes = {name: psutil.Process(pid) for name, pid in pids.items()}

    @contextmanager
    def except_for(self, name: str) -> Iterator[None]:
        if (process := self._processes.get(name)) is None:
            yield
            return
        process.resume()
        try:
            yield
        finally:
            process.suspend()

    def __enter__(self) -> Self:
        for process in self._processes.values():
            process.suspend()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.resume()
