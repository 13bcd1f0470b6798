"""Brings the queries of a run to rest: behind a micro-batch that is done, with none begun behind it.

A query that is stopped leaves the batch under way to its next start, which repeats it as it was. At rest
there is nothing to repeat, so that another cluster can go on with the state and divide it anew.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from headrace.app.query.checkpoint import forget_unbegun, last_begun
from headrace.streams.engine import BatchGate, CheckpointRecords

__all__ = ["QueryRest", "bring_to_rest"]

_LOOK_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRest:
    """What one query needs for it: its gate, its folder, and its records, if they are kept elsewhere.

    `planned_before` is the last batch that was planned before this run. Without a folder Spark alone knows
    where the query stands, and it is only stopped.
    """

    gate: BatchGate = field(default_factory=BatchGate)
    folder: Path | None = None
    records: CheckpointRecords | None = None
    planned_before: int = -1

    @classmethod
    def of(cls, folder: Path, records: CheckpointRecords | None) -> "QueryRest":
        """For a query that is about to start, maybe with a batch that an earlier run has begun."""
        return cls(folder=folder, records=records, planned_before=last_begun(folder))

    def close(self) -> None:
        self.gate.close()

    def has_come(self, query: StreamingQuery) -> bool:
        """Whether Spark has nothing more to do for the batch that was let through last."""
        if self.folder is None or not query.isActive:
            return True
        return self.gate.is_passed() and not query.status["isTriggerActive"]

    def settle(self) -> bool:
        """Once the query has been stopped: forgets a batch that was not begun; whether none is under way."""
        if self.folder is None:
            return True
        begun = self.gate.last_begun
        is_at_rest = forget_unbegun(self.folder, max(self.planned_before, -1 if begun is None else begun))
        if is_at_rest and self.records is not None and begun is not None:
            self.records.rest()
        return is_at_rest


def bring_to_rest(queries: Iterable[tuple[QueryRest, StreamingQuery]], check: Callable[[], None]) -> bool:
    """Stops the queries as soon as each is done with its batch; False if one has failed within a batch.

    `check` is called while it waits, and may raise.
    """
    left = list(queries)
    stopped = []
    for rest, _ in left:
        rest.close()
    while left:
        for each in [each for each in left if each[0].has_come(each[1])]:
            left.remove(each)
            stopped.append(each)
            each[1].stop()
        check()
        time.sleep(_LOOK_S)
    settled = [rest.settle() for rest, _ in stopped]
    return all(settled)
