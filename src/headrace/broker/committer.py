"""The hand-over of commits to threads that wait for the disk, and back.

An executor would do, but between a small record and its acknowledgement its
futures, conditions and chained callbacks cost more than the record itself. Here
a call crosses one queue, and its outcome comes back as one callback.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue

__all__ = ["Committer"]

Commit = Callable[[], int]
Done = Callable[[int, BaseException | None], None]


class Committer:
    """Runs commits on at most `threads` threads. Event loop only.

    Calls are begun in the order they came. `done(high watermark, None)` or
    `done(-1, error)` is then called on the event loop, once.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._threads: list[threading.Thread] = []
        self._queue: SimpleQueue[tuple[Commit, Done, asyncio.AbstractEventLoop] | None] = SimpleQueue()
        self._running = 0

    def run(self, commit: Commit, done: Done) -> None:
        """Hands a commit over; a thread is added if all are busy and there may be more."""
        self._running += 1
        if self._running > len(self._threads) < self._most:
            self._add_thread()

        def finish(high_watermark: int, error: BaseException | None) -> None:
            self._running -= 1
            done(high_watermark, error)

        self._queue.put((commit, finish, asyncio.get_running_loop()))

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


def _work(queue: "SimpleQueue[tuple[Commit, Done, asyncio.AbstractEventLoop] | None]") -> None:
    while (job := queue.get()) is not None:
        commit, done, loop = job
        try:
            outcome: tuple[int, BaseException | None] = commit(), None
        except BaseException as error:
            outcome = -1, error
        loop.call_soon_threadsafe(done, *outcome)
        del job, commit, done, loop, outcome  # an idle thread holds nothing
