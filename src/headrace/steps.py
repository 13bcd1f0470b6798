"""Named steps around the commit of a batch, for tests that end the process at each of them.

Stores, and what writes files in Spark's Python workers, call `reached` as they go; nothing
happens unless a test has called `watch`.
"""

from collections.abc import Callable

__all__ = ["STATE_STEPS", "STEPS", "WORKER_STEPS", "reached", "watch"]

# Of a store, in this order within a batch. A store leaves out what it has no such step for.
STEPS = ("begun", "rows written", "ledger written", "committed", "tidied")

# Of a bucket's state, in a Python worker: its file is written beside, then renamed.
STATE_STEPS = ("state written", "state renamed")

# Of all that a Python worker does.
WORKER_STEPS = ("parcel written", *STATE_STEPS)

_watchers: list[Callable[[str], None]] = []


def reached(step: str) -> None:
    """Tells whoever watches that the step is done."""
    for watcher in _watchers:
        watcher(step)


def watch(watcher: Callable[[str], None]) -> None:
    """Calls `watcher` with every step that is reached in this process from now on."""
    _watchers.append(watcher)
