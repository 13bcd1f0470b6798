"""Views of plain DataFrames: Spark computes them, and each batch is written once.

Spark alone knows what such a query has read and what its state is. The view has
therefore no offsets and no counters, `verify` cannot prove it, and what changed in the
query itself is Spark's to refuse.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headrace.app.plan.names import frame_query
from headrace.app.plan.planner import AppPlan, PlannedFrame
from headrace.app.query.checkpoint import Manifest
from headrace.app.query.sinks import OutputWriter, SideTopics, ViewWriter, write_fitting
from headrace.app.status.batch_report import BatchReport
from headrace.client.write import OutputRecord
from headrace.errors import ConfigError
from headrace.views import ChangeKind, ViewBatch, ViewSchema, without_misfits

__all__ = ["FrameSink", "frame_changes", "frame_folder", "ready_frames", "start_frame"]


def frame_folder(data: Path, view: str) -> Path:
    """Where the query of one DataFrame keeps its manifest and its checkpoint."""
    return data / "frames" / view


def ready_frames(plan: AppPlan, data: Path, *, rebuild: bool) -> dict[str, Manifest]:
    """The manifest of each DataFrame's query; raises ConfigError if its columns changed."""
    manifests = {}
    for planned in plan.frames:
        folder = frame_folder(data, planned.view.name)
        if rebuild:
            shutil.rmtree(folder, ignore_errors=True)
        manifests[planned.view.name] = _ready(planned, folder)
    return manifests


def _ready(planned: PlannedFrame, folder: Path) -> Manifest:
    """The manifest to go on with; a new query id where there is no checkpoint, so batches count from 0."""
    offsets = folder / "checkpoint" / "offsets"
    has_begun = offsets.is_dir() and any(offsets.iterdir())
    manifest = Manifest.read(folder) if has_begun else None
    described = _describe(planned.schema)
    if manifest is None:
        manifest = Manifest.new(described, buckets=0)
        manifest.write(folder)
    elif manifest.query != described:
        raise ConfigError(
            f"view {planned.view.name!r} was made with other columns or another key "
            f"({manifest.query}) than it has now ({described}). Run it with --rebuild to build it "
            "again from the log, or undo the change"
        )
    return manifest


def _describe(schema: ViewSchema) -> dict[str, Any]:
    columns = {field.name: str(field.type) for field in schema.columns}
    return {"columns": columns, "key": list(schema.key)}


class FrameSink:
    """Takes the rows that Spark changed in a batch, as `foreachBatch` gives them.

    Rows that the store cannot keep become dead letters by way of `records`.
    """

    def __init__(
        self,
        planned: PlannedFrame,
        app_name: str,
        query_id: str,
        stores: Mapping[str, ViewWriter],
        records: OutputWriter | None,
        on_batch: Callable[[BatchReport], None],
        on_step: Callable[[str], None],
    ) -> None:
        self._planned = planned
        self._app_name = app_name
        self._records = records
        self._limits: dict[str, int] = {}
        self._query_id = query_id
        self._stores = stores
        self._on_batch = on_batch
        self._on_step = on_step

    def __call__(self, rows: pa.Table, batch_id: int) -> None:
        name = self._planned.view.name
        schema, store = self._planned.schema, self._stores[name]
        changes, aside = without_misfits(store, schema, frame_changes(schema, rows))
        self._on_step(f"view {name}")
        store.apply(name, ViewBatch(self._query_id, batch_id, changes))
        if self._records is not None and aside is not None:
            self._on_step("records")
            write_fitting(self._records, batch_id, self._limits, lambda: self._letters([aside]))
        self._on_step("done")
        self._on_batch(
            BatchReport(
                query=frame_query(name),
                batch_id=batch_id,
                records=0,
                watermark_us=None,
                following={},
                counters={name: {}},
                changed={name: rows.num_rows},
            )
        )

    def _letters(self, aside: list[pa.Table]) -> Iterator[OutputRecord]:
        return SideTopics(self._app_name, self._limits).unfit(None, self._planned.view.name, aside)


def frame_changes(schema: ViewSchema, rows: pa.Table) -> pa.Table:
    """Rows as Spark's update mode gives them: each takes the place of the row with its key."""
    table = rows.select(schema.columns.names).cast(schema.columns).combine_chunks()
    columns = [pa.concat_arrays(column.chunks or [pa.array([], column.type)]) for column in table.columns]
    after = pa.StructArray.from_arrays(columns, fields=list(schema.columns))
    return pa.table(
        {
            **{name: table[name] for name in schema.key},
            "kind": pa.repeat(pa.scalar(int(ChangeKind.UPDATE), pa.int8()), table.num_rows),
            "before": pa.nulls(table.num_rows, after.type),
            "after": after,
        }
    )


def start_frame(
    planned: PlannedFrame,
    sink: Callable[[pa.Table, int], None],
    *,
    checkpoint: Path,
    trigger_ms: int,
    until_caught_up: bool,
) -> StreamingQuery:
    """Starts the query from its checkpoint, now and after each failure."""
    writer = planned.frame.writeStream.outputMode("update").foreachBatch(partial(_take, sink))
    writer = writer.option("checkpointLocation", str(checkpoint))
    if until_caught_up:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{trigger_ms} milliseconds").start()


def _take(sink: Callable[[pa.Table, int], None], frame: DataFrame, batch_id: int) -> None:
    sink(frame.toArrow(), batch_id)
