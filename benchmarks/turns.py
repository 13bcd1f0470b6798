"""Several pieces of work taken in turns, so that what disturbs a shared machine disturbs all of them."""

import os
from collections.abc import Generator, Mapping
from typing import TypeVar

__all__ = ["Work", "in_turns"]

T = TypeVar("T")
Work = Generator[None, None, T]
"""Work that yields wherever it may be another's turn, and returns its result."""


def in_turns(works: Mapping[str, Work[T]]) -> dict[str, T]:
    """Each goes on to its next `yield`, one after the other, until all are done; their results.

    The disk is brought to rest before every turn, or pages that one left unsynced would be
    written out in another's time.
    """
    results: dict[str, T] = {}
    waiting = dict(works)
    while waiting:
        for name, work in tuple(waiting.items()):
            os.sync()
            try:
                next(work)
            except StopIteration as ended:
                results[name] = ended.value
                del waiting[name]
    return results
