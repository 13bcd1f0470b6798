"""The stateful stage as Spark sees it: what it keeps for a bucket, and whom to call.

Before a query's first batch Spark starts a process that only asks for the state's layout.
Nothing is imported here, therefore, that this needs not; the work is `stage_work`'s.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.streams.folded import Folded

if TYPE_CHECKING:
    import pandas as pd

    from headrace.streams.engine.plan import StreamPlan

__all__ = ["BucketStage"]


class BucketStage(StatefulProcessor):
    """Keeps the operators' states of each bucket, and lets them advance."""

    def __init__(self, plan: "StreamPlan", run_id: str) -> None:
        self._folded_plan = Folded(plan)
        self._plan: StreamPlan | None = None
        self._run_id = run_id

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState(
            "head", "base long, tokens array<string>, delta_bytes long, snapshot_bytes long"
        )
        self._entries = handle.getMapState(
            "entries", "number long", "is_snapshot boolean, watermark_us long, blobs array<binary>"
        )

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> "Iterator[pd.DataFrame]":
        from headrace.streams.engine.stage_work import SparkLog, advance

        if self._plan is None:
            self._plan = self._folded_plan.open()
        yield advance(self._plan, self._run_id, int(key[0]), SparkLog(self._head, self._entries), rows)

    def close(self) -> None:
        """Nothing is held open."""
