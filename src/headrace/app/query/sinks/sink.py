"""What is done with a batch's output: views, records, progress; each at most once per batch.

Every place keeps the batch's number together with what it writes, so a batch that is
given again, after a failure anywhere, changes only the places that had not seen it. The
progress of the group comes last: it is for onlookers, and a note for the feed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from headrace.app.plan.plan import PlannedStream, PlannedView
from headrace.app.query.sinks.batch_output import BatchOutput, collect
from headrace.app.query.sinks.batch_records import BatchRecords
from headrace.app.status.batch_report import BatchReport
from headrace.client import LARGEST_RECORD_BYTES
from headrace.client.write import OutputRecord, RecordTooLarge, smaller_limit
from headrace.streams.engine import Outgoing
from headrace.views import ChangeKind, ViewBatch, ViewSchema, without_misfits

__all__ = ["BatchReport", "OutputWriter", "StreamSink", "ViewWriter", "ignore", "write_fitting"]


class OutputWriter(Protocol):
    """Where records of a batch go, each batch once: `RecordSink`, or a list in a test."""

    def write(self, batch_id: int, records: Iterator[OutputRecord]) -> bool: ...


class ViewWriter(Protocol):
    """Where changes of a view go, each batch once: its store, or a build that is still hidden."""

    def apply(self, view: str, batch: ViewBatch) -> bool: ...


def ignore(_: object) -> None:
    """For a caller that does not listen."""


@dataclass(slots=True, kw_only=True)
class StreamSink:
    """The sink of one query; called by Spark on the driver, batch after batch, in order.

    Dead and late records before the offsets of `side_offsets` are on their topics already.
    `on_step` is told the name of every step before it is taken: crash tests end the
    process there.
    """

    planned: PlannedStream
    app_name: str
    query_id: str
    stores: Mapping[str, ViewWriter]
    records: OutputWriter
    commit_progress: Callable[[BatchOutput], None]
    side_offsets: Mapping[int, int] = field(default_factory=dict)
    on_batch: Callable[[BatchReport], None] = ignore
    on_step: Callable[[str], None] = ignore
    limits: dict[str, int] = field(default_factory=dict, init=False)  # of topics that take less than asked
    _made: BatchRecords = field(init=False)

    def __post_init__(self) -> None:
        self._made = BatchRecords.of(self.app_name, self.planned, self.query_id, self.side_offsets)

    def __call__(self, messages: Iterable[Outgoing], batch_id: int) -> None:
        output = collect(messages)
        changed = {}
        for number, view in enumerate(self.planned.views):
            changed[view.view.name] = self._apply(number, view, batch_id, output)
        self.on_step("records")
        write_fitting(self.records, batch_id, self.limits, lambda: self._made.make(output, self.limits))
        self.on_step("progress")
        self.commit_progress(output)
        self.on_step("done")
        self.on_batch(self._report(batch_id, output, changed))

    def _apply(self, number: int, planned: PlannedView, batch_id: int, output: BatchOutput) -> int:
        """Brings one view up to date; how many rows changed."""
        if planned.view.name not in self.stores:
            return 0  # a derived topic of rows, which is written with the other records
        store = self.stores[planned.view.name]
        changes, aside = without_misfits(store, planned.schema, _changes(number, planned, output))
        if aside is not None:
            output.unfit.setdefault(number, []).append(aside)
        batch = ViewBatch(
            query_id=self.query_id,
            batch_id=batch_id,
            changes=changes,
            offsets={self.planned.name: output.following},
            watermark_us=output.watermark_us,
            counters=output.counts(number),
            distinct=planned.plan.stateful is not None,  # a batch tells of a window, or a key, once
            staged=tuple(output.staged.get(number, ())),
        )
        self.on_step(f"view {planned.view.name}")
        store.apply(planned.view.name, batch)
        return batch.changed

    def _report(self, batch_id: int, output: BatchOutput, changed: Mapping[str, int]) -> BatchReport:
        names = [planned.view.name for planned in self.planned.views]
        return BatchReport(
            query=self.planned.name,
            batch_id=batch_id,
            records=output.records,
            watermark_us=output.watermark_us,
            following=output.following,
            counters={name: output.counts(number) for number, name in enumerate(names)},
            changed=changed,
        )


def write_fitting(
    records: OutputWriter, batch_id: int, limits: dict[str, int], make: Callable[[], Iterator[OutputRecord]]
) -> None:
    """Writes a batch's records; what its topic does not take is shortened, or set aside, and made again.

    `limits` has what topics take that take less than is asked of them: `make` goes by it.
    """
    while True:
        try:
            records.write(batch_id, make())
        except RecordTooLarge as refused:
            most_bytes = limits.get(refused.topic, LARGEST_RECORD_BYTES)
            limits[refused.topic] = smaller_limit(refused, most_bytes)
        else:
            return


def _changes(number: int, planned: PlannedView, output: BatchOutput) -> pa.Table | None:
    if planned.plan.stateful is not None:
        tables = output.changes.get(number)
        return pa.concat_tables(tables) if tables else None
    rows = output.rows.get(number)
    return None if not rows else row_changes(planned.schema, rows)


def row_changes(schema: ViewSchema, tables: Sequence[pa.Table]) -> pa.Table:
    """Rows as changes of a view that shows every record, partition by partition in the order of the log."""
    table = pa.concat_tables(tables).sort_by([("_partition", "ascending"), ("_offset", "ascending")])
    columns = {name: table[name].combine_chunks() for name in schema.columns.names}
    after = pa.StructArray.from_arrays(list(columns.values()), names=list(columns))
    return pa.table(
        {
            **columns,
            "kind": pa.repeat(pa.scalar(int(ChangeKind.CLOSE), pa.int8()), table.num_rows),
            "before": pa.nulls(table.num_rows, after.type),
            "after": after,
        }
    )
