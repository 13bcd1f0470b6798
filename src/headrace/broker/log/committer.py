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
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter
from typing import NamedTuple, Protocol

__all__ = ["SMALL_BYTES", "Committer", "LoopTurns"]

logger = logging.getLogger(__name__)

SMALL_BYTES = 16 * 1024
SLOW_S = 0.001
REST = 1 / 4  # of the time that a commit took on the loop, before the next may begin there
_MEMORY = 8  # commits, about, that are remembered

Done = Callable[[int, BaseException | None], None]


class Committable(Protocol):
    """What is needed of a partition's log."""

    @property
    def pending_bytes(self) -> int: ...

    def commit(self) -> int: ...


class LoopTurns:
    """When the event loop may wait for the disk itself, given how long commits took of late.

    While they take less than a millisecond, as a rule: a single slow one does not
    matter, several do, until as many were fast again, on threads. And for four fifths of
    the loop's time at most. One of which it is known that nobody waited for its end does
    not count.
    """

    def __init__(self) -> None:
        self._not_before_s = 0.0
        self._usual_s = 0.0

    @property
    def are_short(self) -> bool:
        """Whether commits are fast, as a rule."""
        return self._usual_s < SLOW_S

    def may_begin(self, now_s: float) -> bool:
        return self.are_short and now_s >= self._not_before_s

    def ended(self, began_s: float, now_s: float, *, here: bool) -> None:
        """A commit took so long: `here`, on the loop, or on a thread."""
        took_s = now_s - began_s
        self.held_up(took_s)
        if here:
            self._not_before_s = now_s + took_s * REST

    def held_up(self, took_s: float) -> None:
        """Somebody waited so long for a commit, or may have."""
        self._usual_s += (min(took_s, _MEMORY * SLOW_S / 2) - self._usual_s) / _MEMORY


class _Job(NamedTuple):
    """What a thread is to call; the event loop is then told its outcome, and when it began and ended."""

    work: Callable[[], int | None]
    tell: Callable[[int, BaseException | None, float, float], None]
    loop: asyncio.AbstractEventLoop


class Committer:
    """Runs commits on at most `threads` threads, and small lone ones at once. Event loop only.

    Calls are begun in the order they came. `done(high watermark, None)` or `done(-1, error)`
    is then called on the event loop, once; from within `run` only where that was asked for.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._running = 0
        self._turns = LoopTurns()

    def run(self, log: Committable, done: Done, *, urgent: bool = True, alone: bool = False) -> None:
        """Commits what was appended to `log`, and what is appended until then.

        What is not urgent never holds the event loop up. What is `alone`, nothing else
        having been received that could share its sync, may be done before this returns.
        """
        self._running += 1
        if not (urgent and self._is_light(log)):
            self._run_there(log, done)
        elif alone:
            self._run_now(log, done)
        else:  # not before what has been received already is appended too
            asyncio.get_running_loop().call_soon(self._run_here, log, done)

    @property
    def may_run_here(self) -> bool:
        """Whether the caller may run a small commit here and now, if nobody waits for the event loop.

        Which therefore needs no rest; and however slow it is, it is of no account unless it
        turns out that somebody came to wait for it (`was_awaited_here`).
        """
        return not self._running and self._turns.are_short

    def was_awaited_here(self, took_s: float) -> None:
        """Such a commit took so long, and somebody waited for its end."""
        self._turns.held_up(took_s)

    def _is_light(self, log: Committable) -> bool:
        return (
            self._running == 1 and log.pending_bytes <= SMALL_BYTES and self._turns.may_begin(perf_counter())
        )

    def _run_here(self, log: Committable, done: Done) -> None:
        if self._is_light(log):  # still
            self._run_now(log, done)
        else:
            self._run_there(log, done)

    def _run_now(self, log: Committable, done: Done) -> None:
        began_s = perf_counter()
        outcome = _outcome(log.commit)
        self._turns.ended(began_s, perf_counter(), here=True)
        self._running -= 1
        done(*outcome)

    def _run_there(self, log: Committable, done: Done) -> None:
        def finish(high_watermark: int, error: BaseException | None, began_s: float, ended_s: float) -> None:
            self._turns.ended(began_s, ended_s, here=False)
            self._running -= 1
            done(high_watermark, error)

        self._hand_over(log.commit, finish)

    def run_on_thread(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        """Does what waits for the disk, and nobody for it, in its turn among the commits."""

        def finish(_: int, error: BaseException | None, *__: float) -> None:
            if error is not None:
                logger.error("failed behind a commit", exc_info=error)
            then()

        self._hand_over(work, finish)

    def _hand_over(
        self,
        work: Callable[[], int | None],
        tell: Callable[[int, BaseException | None, float, float], None],
    ) -> None:
        """Puts work in the queue; a thread is added if all are busy and there may be more."""
        if max(self._running, 1) > len(self._threads) < self._most:
            self._add_thread()
        self._queue.put(_Job(work, tell, asyncio.get_running_loop()))

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


def _outcome(work: Callable[[], int | None]) -> tuple[int, BaseException | None]:
    try:
        return work() or 0, None
    except BaseException as error:  # the caller decides what it means
        return -1, error


def _work(queue: "SimpleQueue[_Job | None]") -> None:
    while (job := queue.get()) is not None:
        work, tell, loop = job
        began_s = perf_counter()
        outcome = _outcome(work)
        loop.call_soon_threadsafe(tell, *outcome, began_s, perf_counter())
        del job, work, tell, loop, outcome  # an idle thread holds nothing
