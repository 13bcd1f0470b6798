"""Named points around the commit of a batch, at which crash tests end the process.

Stores, and the code that writes files in Spark's Python workers, call `reached` at each of
them; nothing happens unless a test has called `watch`.
"""

from collections.abc import Callable

__all__ = ["STATE_POINTS", "STORE_POINTS", "TASK_POINTS", "WORKER_POINTS", "reached", "watch"]

# Of a store, in this order within a batch. A store may lack some of them.
STORE_POINTS = ("begun", "rows written", "ledger written", "committed", "tidied")

# Of a bucket's state, in a Python worker: its file is written under another name, then renamed.
STATE_POINTS = ("state written", "state renamed")

# Of everything that a Python worker writes.
WORKER_POINTS = ("spill file written", *STATE_POINTS)

# Of a task that writes its results itself: transactions of records, and changes of views.
TASK_POINTS = ("begun", "rows written", "ledger written", "committed", "part staged")

_watchers: list[Callable[[str], None]] = []


def reached(point: str) -> None:
    """The code has come to this point."""
    for watcher in _watchers:
        watcher(point)


def watch(watcher: Callable[[str], None]) -> None:
    """Calls `watcher` with every point that is reached in this process from now on."""
    _watchers.append(watcher)
