"""Whether a recorded history is linearisable: the search of Wing and Gong, with Lowe's memory of dead ends.

An operation has the moments of its call and of its return, and the result that was seen; one
that never returned may have happened at any time after its call, or not at all. `is_linearisable`
looks for an order of the operations that respects real time and in which a sequential model gives
each the result that was seen. Histories of several objects are checked object by object.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Operation:
    """One call and its result; `returned` is NEVER where none came."""

    called: float
    returned: float
    what: Any
    result: Any = None


# The state after an operation, for each way in which it may have gone; none if it cannot have.
Model = Callable[[Hashable, Operation], Sequence[Hashable]]


def is_linearisable(history: Sequence[Operation], model: Model, initial: Hashable) -> bool:
    """Whether there is an order that explains every result."""
    operations = sorted(history, key=lambda each: each.called)
    everything = (1 << len(operations)) - 1
    required = sum(1 << at for at, each in enumerate(operations) if each.returned != NEVER)
    seen: set[tuple[int, Hashable]] = set()
    waiting: list[tuple[int, Hashable]] = [(0, initial)]
    while waiting:
        done, state = waiting.pop()
        if done & required == required:
            return True
        for at in _next(operations, everything & ~done):
            for after in model(state, operations[at]):
                place = (done | 1 << at, after)
                if place not in seen:
                    seen.add(place)
                    waiting.append(place)
    return False


def _next(operations: Sequence[Operation], left: int) -> list[int]:
    """Those that may come next: called before any of the others that are left has returned."""
    remaining = [at for at in range(len(operations)) if left >> at & 1]
    first_return = min(operations[at].returned for at in remaining)
    return [at for at in remaining if operations[at].called <= first_return]
