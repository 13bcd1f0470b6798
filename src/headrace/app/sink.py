"""What is done with a batch's output: views, records, progress; each at most once per batch.

Every place keeps the batch's number together with what it writes, so a batch that is
given again, after a failure anywhere, changes only the places that had not seen it. The
progress of the group comes last: it is for onlookers, and a note for the feed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from headrace.app.collecting import BatchOutput, collect
from headrace.app.plans import PlannedStream, PlannedView
from headrace.app.records import dead_records, derived_records, forgotten_records, late_records
from headrace.app.reports import BatchReport
from headrace.streams.engine.messages import Outgoing
from headrace.views import Kind, OutputRecord, ViewBatch

__all__ = ["BatchReport", "StreamSink", "ViewWriter", "ignore", "untold"]


class Records(Protocol):
    """Where records of a batch go, each batch once: `RecordSink`, or a list in a test."""

    def write(self, batch_id: int, records: Iterator[OutputRecord]) -> bool: ...


class ViewWriter(Protocol):
    """Where changes of a view go, each batch once: its store, or a build that is still hidden."""

    def apply(self, view: str, batch: ViewBatch) -> bool: ...


def ignore(_: object) -> None:
    """For whoever does not listen."""


@dataclass(slots=True, kw_only=True)
class StreamSink:
    """The sink of one query; called by Spark on the driver, batch after batch, in order.

    Dead and late records before the offsets of `told` are on their topics already.
    `on_step` is told the name of every step before it is taken: crash tests end the
    process there.
    """

    planned: PlannedStream
    app_name: str
    query_id: str
    stores: Mapping[str, ViewWriter]
    records: Records
    commit_progress: Callable[[BatchOutput], None]
    told: Mapping[int, int] = field(default_factory=dict)
    on_batch: Callable[[BatchReport], None] = ignore
    on_step: Callable[[str], None] = ignore

    def __call__(self, messages: Iterable[Outgoing], batch_id: int) -> None:
        output = collect(messages)
        changed = {}
        for number, view in enumerate(self.planned.views):
            changed[view.view.name] = self._apply(number, view, batch_id, output)
        self.on_step("records")
        self.records.write(batch_id, self._records(output))
        self.on_step("progress")
        self.commit_progress(output)
        self.on_step("done")
        self.on_batch(self._report(batch_id, output, changed))

    def _apply(self, number: int, planned: PlannedView, batch_id: int, output: BatchOutput) -> int:
        """Brings one view up to date; how many rows changed."""
        if planned.view.name not in self.stores:
            return 0  # a derived topic of rows, which is written with the other records
        changes = _changes(number, planned, output)
        batch = ViewBatch(
            query_id=self.query_id,
            batch_id=batch_id,
            changes=changes,
            offsets={self.planned.name: output.following},
            watermark_us=output.watermark_us,
            books=output.counts(number),
            distinct=planned.plan.operator is not None,  # a batch tells of a window once
        )
        self.on_step(f"view {planned.view.name}")
        self.stores[planned.view.name].apply(planned.view.name, batch)
        return 0 if changes is None else changes.num_rows

    def _records(self, output: BatchOutput) -> Iterator[OutputRecord]:
        """Everything of a batch that goes to topics: late and dead records, and derived ones."""
        topic, app = self.planned.name, self.app_name
        dead = untold(output.dead, self.told, "partition", "offset")
        yield from dead_records(app, topic, self.query_id, dead)
        for number, planned in enumerate(self.planned.views):
            name = planned.view.name
            late = untold(output.late.get(number, ()), self.told, "_partition", "_offset")
            yield from late_records(app, topic, name, late)
            yield from forgotten_records(app, topic, name, output.forgotten.get(number, ()))
            if planned.view.topic is not None and planned.plan.operator is None:
                yield from derived_records(planned, output.rows.get(number, ()))

    def _report(self, batch_id: int, output: BatchOutput, changed: Mapping[str, int]) -> BatchReport:
        names = [planned.view.name for planned in self.planned.views]
        return BatchReport(
            query=self.planned.name,
            batch_id=batch_id,
            records=output.records,
            watermark_us=output.watermark_us,
            following=output.following,
            books={name: output.counts(number) for number, name in enumerate(names)},
            changed=changed,
        )


def untold(
    tables: Sequence[pa.Table], told: Mapping[int, int], partition: str, offset: str
) -> Iterator[pa.Table]:
    """The rows at or behind the offsets of their partitions; `partition` and `offset` name the columns."""
    for table in tables:
        kept = [
            next_ >= told.get(each, 0)
            for each, next_ in zip(table[partition].to_pylist(), table[offset].to_pylist(), strict=True)
        ]
        yield table if all(kept) else table.filter(pa.array(kept))


def _changes(number: int, planned: PlannedView, output: BatchOutput) -> pa.Table | None:
    if planned.plan.operator is not None:
        tables = output.changes.get(number)
        return pa.concat_tables(tables) if tables else None
    rows = output.rows.get(number)
    return None if not rows else row_changes(planned, rows)


def row_changes(planned: PlannedView, tables: Sequence[pa.Table]) -> pa.Table:
    """Rows as changes of a view without windows, in the order of the log, so that the last of a key stays."""
    table = pa.concat_tables(tables).sort_by([("_partition", "ascending"), ("_offset", "ascending")])
    columns = {name: table[name].combine_chunks() for name in planned.schema.columns.names}
    after = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    return pa.table(
        {
            **columns,
            "kind": pa.repeat(pa.scalar(int(Kind.CLOSE), pa.int8()), table.num_rows),
            "before": pa.nulls(table.num_rows, after.type),
            "after": after,
        }
    )
