"""Plans for moving a group's committed offsets. Pure: nothing is changed here.

A plan names every partition with the offset it has and the one it would get;
targets outside the log are brought inside it and marked as clamped.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.topics import Bounds, Position, PositionKind
from headrace.errors import RequestError

__all__ = ["Move", "Shift", "active_group_error", "plan_reset"]

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Shift:
    """By how many records to move the committed offset; negative moves back."""

    by: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition's part of a plan."""

    topic: str
    partition: int
    committed: int | None
    target: int
    bounds: Bounds
    clamped: bool

    @property
    def replayed_records(self) -> int | None:
        """How many records will be read again; negative when some are skipped."""
        return None if self.committed is None else self.committed - self.target


def plan_reset(
    target: Position | Shift,
    *,
    committed: Mapping[Partition, int | None],
    bounds: Mapping[Partition, Bounds],
    offsets_at_time: Mapping[Partition, int | None],
) -> list[Move]:
    """A move for every partition in `committed`, sorted; raises RequestError where none can be made."""
    moves = []
    for (topic, partition), current in sorted(committed.items()):
        wanted = _wanted(target, topic, partition, current)
        limits = bounds[topic, partition]
        if wanted is None:
            assert isinstance(target, Position)
            new = target.offset_in(limits, offsets_at_time.get((topic, partition)))
        else:
            new = limits.clamp(wanted)
        moves.append(
            Move(
                topic=topic,
                partition=partition,
                committed=current,
                target=new,
                bounds=limits,
                clamped=wanted is not None and new != wanted,
            )
        )
    return moves


def _wanted(target: Position | Shift, topic: str, partition: int, current: int | None) -> int | None:
    """The offset asked for by number, before clamping; None when the log decides it."""
    if isinstance(target, Shift):
        if current is None:
            raise RequestError(
                f"{topic}:{partition} has no committed offset to shift from; "
                "reset it with --to-offset, --to-time, --to-earliest or --to-latest"
            )
        return current + target.by
    return target.number if target.kind is PositionKind.OFFSET else None


def active_group_error(group: str, state: str, members: int) -> RequestError:
    """Why offsets of a group in use are not moved, and what to do about it."""
    who = f"{members} member{'s' if members != 1 else ''}"
    return RequestError(
        f"group {group!r} is in use (state {state}, {who}): its members would overwrite the new offsets; "
        "stop its consumers, wait until the state is Empty, and try again"
    )
