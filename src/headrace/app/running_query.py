"""One of Spark's queries while it runs."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["RunningQuery"]


@dataclass(slots=True)
class RunningQuery:
    """One of Spark's queries, and how to start it once more from its checkpoint."""

    name: str
    start: Callable[[], StreamingQuery]
    spark_query: StreamingQuery
    restarts: int = 0
    tries: int = 0
    again_at: float | None = None
    _stuck_at: int | None = None

    def go_on(self) -> None:
        """Once more, after it has ended as it should."""
        self.spark_query = self.start()

    def restart(self) -> None:
        self.restarts += 1
        self.tries += 1
        self.again_at = None
        self.spark_query = self.start()

    @property
    def pause_s(self) -> float:
        """How long to wait before the next restart: none before the first, then ever longer."""
        return float(2**self.tries) if self.tries else 0.0

    def failed_at(self, batch_id: int) -> None:
        """It failed after this batch; tries count anew once a restart has brought it further."""
        if batch_id != self._stuck_at:
            self._stuck_at, self.tries = batch_id, 0

    def stop(self) -> None:
        self.spark_query.stop()

    def batch_seconds(self) -> float | None:
        """How long Spark took for the last micro-batch, planning included; None before the first."""
        progress = self.spark_query.lastProgress
        return None if progress is None else progress["batchDuration"] / 1000
