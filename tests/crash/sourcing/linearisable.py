"""Whether a recorded history is linearisable: the search of Wing and Gong, with Lowe's memory of dead ends.

An operation has the moments of its call and of its return, and the result that was seen; one
that never returned may have happened at any time after its call, or not at all. `is_linearisable`
looks for an order of the operations that respects real time and in which a sequential model gives
each the result that was seen. Histories of several objects are checked object by object.

The search keeps little more than the operations that overlap: those that have returned are taken
nearly in the order of their calls, so what was taken is a position and a few bits after it.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
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


@dataclass(frozen=True, slots=True)
class Place:
    """What was taken: all that returned before `start`, some after it, and some that never returned."""

    start: int
    later: int  # bits from `start` on
    unanswered: int
    state: Hashable


def is_linearisable(history: Sequence[Operation], model: Model, initial: Hashable) -> bool:
    """Whether there is an order that explains every result."""
    in_order = sorted(history, key=lambda each: each.called)
    answered = [each for each in in_order if each.returned != NEVER]
    unanswered = [each for each in in_order if each.returned == NEVER]
    waiting = [Place(0, 0, 0, initial)]
    seen = set(waiting)
    while waiting:
        place = waiting.pop()
        if place.start == len(answered):
            return True
        for found in _following(place, answered, unanswered, model):
            if found not in seen:
                seen.add(found)
                waiting.append(found)
    return False


def _following(
    place: Place, answered: Sequence[Operation], unanswered: Sequence[Operation], model: Model
) -> Iterator[Place]:
    """After each operation that may come next: one called before any other that is left has returned."""
    may_come, first_return, at = [], NEVER, place.start
    while at < len(answered) and answered[at].called <= first_return:
        if not place.later >> (at - place.start) & 1:
            may_come.append(at)
            first_return = min(first_return, answered[at].returned)
        at += 1
    for number, operation in enumerate(unanswered):
        if operation.called <= first_return and not place.unanswered >> number & 1:
            for state in model(place.state, operation):
                yield Place(place.start, place.later, place.unanswered | 1 << number, state)
    for at in reversed(may_come):  # the last to be yielded is tried first: that of the first call
        if answered[at].called <= first_return:
            for state in model(place.state, answered[at]):
                start, later = _taken(place, at)
                yield Place(start, later, place.unanswered, state)


def _taken(place: Place, at: int) -> tuple[int, int]:
    start, later = place.start, place.later | 1 << (at - place.start)
    while later & 1:
        start, later = start + 1, later >> 1
    return start, later
