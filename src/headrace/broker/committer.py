"""Where commits wait for the disk: on threads, or, while there is little to do, on the event loop.

An executor would do for the hand-over, but between a small record and its
acknowledgement its futures, conditions and chained callbacks cost more than the
record itself. Here a call crosses one queue, and its outcome comes back as one
callback.

For one small commit with nothing else under way even that is the larger part of
the wait, on busy processors by far: two threads must be woken, and a fast disk has
synced in less time than that takes. So such a commit runs on the event loop,
which then does nothing else meanwhile. `LoopTurns` sees to it that this stays
cheap for everybody else.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter
from typing import Protocol

__all__ = ["Committer", "LoopTurns"]

SMALL_BYTES = 16 * 1024
SLOW_S = 0.001
_SLOW_REST = 100

Commit = Callable[[], int]
Done = Callable[[int, BaseException | None], None]


class Committable(Protocol):
    """What is needed of a partition's log."""

    @property
    def pending_bytes(self) -> int: ...

    def commit(self) -> int: ...


class LoopTurns:
    """When the event loop may wait for the disk itself, given how long it waited before.

    Commits that take less than a millisecond take up at most half of its time; one
    that takes longer is followed by a hundred times as long without any.
    """

    def __init__(self) -> None:
        self._not_before_s = 0.0

    def may_begin(self, now_s: float) -> bool:
        return now_s >= self._not_before_s

    def ended(self, began_s: float, now_s: float) -> None:
        took_s = now_s - began_s
        self._not_before_s = now_s + took_s * (1 if took_s < SLOW_S else _SLOW_REST)


class Committer:
    """Runs commits on at most `threads` threads, and small lone ones at once. Event loop only.

    Calls are begun in the order they came. `done(high watermark, None)` or
    `done(-1, error)` is then called on the event loop, once, and never from within `run`.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[tuple[Commit, Done, asyncio.AbstractEventLoop] | None] = SimpleQueue()
        self._running = 0
        self._turns = LoopTurns()

    def run(self, log: Committable, done: Done) -> None:
        """Commits what was appended to `log`, and what is appended until then."""
        self._running += 1

        def finish(high_watermark: int, error: BaseException | None) -> None:
            self._running -= 1
            done(high_watermark, error)

        if self._is_light(log):
            # Not before what has been received already is appended too.
            asyncio.get_running_loop().call_soon(self._run_here, log, finish)
        else:
            self._hand_over(log.commit, finish)

    def _is_light(self, log: Committable) -> bool:
        return (
            self._running == 1 and log.pending_bytes <= SMALL_BYTES and self._turns.may_begin(perf_counter())
        )

    def _run_here(self, log: Committable, done: Done) -> None:
        if not self._is_light(log):  # no longer
            self._hand_over(log.commit, done)
            return
        began_s = perf_counter()
        outcome = _outcome(log.commit)
        self._turns.ended(began_s, perf_counter())
        done(*outcome)

    def _hand_over(self, commit: Commit, done: Done) -> None:
        """Puts a commit in the queue; a thread is added if all are busy and there may be more."""
        if self._running > len(self._threads) < self._most:
            self._add_thread()
        self._queue.put((commit, done, asyncio.get_running_loop()))

    def _add_thread(self) -> None:
        name = f"headrace-disk-{len(self._threads)}"
        thread = threading.Thread(target=_work, args=(self._queue,), name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def close(self) -> None:
        """Ends the threads; the caller has waited for every commit."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()


def _outcome(commit: Commit) -> tuple[int, BaseException | None]:
    try:
        return commit(), None
    except BaseException as error:  # whoever asked decides what it means
        return -1, error


def _work(queue: "SimpleQueue[tuple[Commit, Done, asyncio.AbstractEventLoop] | None]") -> None:
    while (job := queue.get()) is not None:
        commit, done, loop = job
        loop.call_soon_threadsafe(done, *_outcome(commit))
        del job, commit, done, loop  # an idle thread holds nothing
