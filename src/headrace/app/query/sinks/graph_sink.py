"""What is done with a batch of a dataflow: its view, records that fell aside, progress.

As with other queries, each place keeps the batch's number together with what it writes, so that a
batch which is given again changes only the places that had not seen it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.app.plan.dataflow import PlannedGraph
from headrace.app.plan.names import dead_topic, late_topic
from headrace.app.query.places import of_topic, place
from headrace.app.query.sinks.batch_records import in_words, unwritten
from headrace.app.query.sinks.counters import BY_CLOCK, HIDDEN, OF_STREAM, SKIPPED
from headrace.app.query.sinks.side_topics import (
    dead_records,
    dropped_records,
    failed_records,
    unfit_records,
)
from headrace.app.query.sinks.sink import OutputWriter, ViewWriter, ignore, write_fitting
from headrace.app.status.batch_report import BatchReport
from headrace.client import LARGEST_RECORD_BYTES
from headrace.client.write import OutputRecord
from headrace.streams import NO_WATERMARK, Mark
from headrace.streams.dataflow import SourceClock, raw_producer
from headrace.streams.engine import BlobKind, Message, decode_json, decode_table
from headrace.streams.operators import STAMPS, WEIGHT, normal_key
from headrace.views import ChangeKind, ViewBatch, ViewSchema, without_misfits

__all__ = ["GraphBatch", "GraphSink", "collect_graph", "weighted_changes"]


@dataclass(slots=True)
class GraphBatch:
    """What one batch brought: rows of the view, and by edge or source what fell aside and was counted."""

    rows: list[pa.Table] = field(default_factory=list)
    late: dict[int, list[pa.Table]] = field(default_factory=dict)
    dead: dict[int, list[pa.Table]] = field(default_factory=dict)
    failed: dict[int, list[pa.Table]] = field(default_factory=dict)
    unfit: dict[int, list[pa.Table]] = field(default_factory=dict)
    counts: dict[int, Counter[str]] = field(default_factory=dict)
    marks: dict[tuple[str, int], Mark] = field(default_factory=dict)
    clock: dict[str, int] = field(default_factory=dict)

    def offsets(self) -> dict[str, dict[int, int]]:
        """The next offset of every partition that the batch knows of, by topic."""
        found: dict[str, dict[int, int]] = {}
        for (topic, partition), mark in sorted(self.marks.items()):
            found.setdefault(topic, {})[partition] = mark.next
        return found

    @property
    def records(self) -> int:
        return sum(mark.records for mark in self.marks.values())


def collect_graph(planned: PlannedGraph, messages: Iterable[Message]) -> GraphBatch:
    """The messages of a batch, sorted by what they mean."""
    batch = GraphBatch()
    view_edge = len(planned.graph.edges) - 1
    for _, number, kind, blob in messages:
        if kind is BlobKind.MARK:  # every bucket passes them on
            mark = Mark.from_json(decode_json(blob))
            batch.marks[mark.topic, mark.partition] = mark
        elif kind is BlobKind.CLOCK:
            batch.clock = decode_json(blob)
        elif kind is BlobKind.COUNTERS:
            batch.counts.setdefault(number, Counter()).update(decode_json(blob))
        elif kind is BlobKind.DEAD:
            source = raw_producer(number)
            assert source is not None
            batch.dead.setdefault(source, []).append(decode_table(blob))
        elif kind is BlobKind.FAILED:
            batch.failed.setdefault(number, []).append(decode_table(blob))
        elif kind is BlobKind.UNFIT:
            batch.unfit.setdefault(number, []).append(decode_table(blob))
        elif kind in (BlobKind.LATE, BlobKind.FORGOTTEN):
            batch.late.setdefault(number, []).append(decode_table(blob))
        else:
            assert number == view_edge, (number, kind)
            batch.rows.append(decode_table(blob))
    return batch


def weighted_changes(schema: ViewSchema, tables: Sequence[pa.Table]) -> pa.Table | None:
    """What rows with weights change of a view, key by key: the row that was there, and the one that is.

    There is at most one row for a key: the graph sees to that. Of a stream, which does not take back
    what another row replaces, it is the newest, by event time, partition and offset, and what was there
    is not known.
    """
    if not tables:
        return None
    table = pa.concat_tables(tables, promote_options="none")
    table = _consolidated(_with_normal_keys(table, schema), schema)
    if not table.num_rows:
        return None
    old, new = (table.filter(pc.field(WEIGHT) < 0), table.filter(pc.field(WEIGHT) > 0))
    old, new = _newest(old, schema), _newest(new, schema)
    return _change_table(schema, old, new, _same_keys(old, new, schema))


def _with_normal_keys(table: pa.Table, schema: ViewSchema) -> pa.Table:
    """Keys as stores tell them apart: -0.0 is 0.0, and every NaN is the same."""
    for name in schema.key:
        number = table.column_names.index(name)
        if pa.types.is_floating(table.schema.field(number).type):
            table = table.set_column(number, name, normal_key(table[name].combine_chunks(), name))
    return table


def _consolidated(table: pa.Table, schema: ViewSchema) -> pa.Table:
    """Equal rows as one with the sum of their weights; those that come to nothing are left out.

    Its stamps are those of the last of them.
    """
    names = schema.columns.names
    stamps = [each for each in STAMPS if each != WEIGHT and each not in names]
    table = table.select([*names, *stamps, WEIGHT]).combine_chunks()
    if not (pc.min(table[WEIGHT]).as_py() or 0) < 0:
        return table
    compared = table.select([*names, WEIGHT]).append_column("\0row", pa.array(np.arange(table.num_rows)))
    for number, column in enumerate(schema.columns):
        if pa.types.is_nested(column.type):
            texts = pa.array([repr(each) for each in compared[number].to_pylist()], pa.large_string())
            compared = compared.set_column(number, column.name, texts)
    grouped = compared.group_by(names, use_threads=False).aggregate([(WEIGHT, "sum"), ("\0row", "max")])
    grouped = grouped.filter(pc.field(f"{WEIGHT}_sum") != 0)
    rows = table.take(grouped["\0row_max"]).combine_chunks()
    return rows.set_column(rows.column_names.index(WEIGHT), WEIGHT, grouped[f"{WEIGHT}_sum"])


def _newest(table: pa.Table, schema: ViewSchema) -> pa.Table:
    key = list(schema.key)
    if table.group_by(key, use_threads=False).aggregate([]).num_rows == table.num_rows:
        return table  # one row for each key: nothing to put in order
    order = [(each, "ascending") for each in ("_event_time", "_partition", "_offset")]
    table = table.sort_by(order)
    numbered = table.append_column("\0row", pa.array(np.arange(table.num_rows)))
    last = numbered.group_by(key, use_threads=False).aggregate([("\0row", "max")])
    return table.take(last["\0row_max"])


def _same_keys(old: pa.Table, new: pa.Table, schema: ViewSchema) -> pa.Table:
    """The rows of two tables that have one key, by their numbers. Null is a key."""
    key = list(schema.key)
    both = pa.concat_tables(
        table.select(key)
        .append_column("\0old", pa.array(np.arange(table.num_rows), mask=np.full(table.num_rows, is_new)))
        .append_column("\0new", pa.array(np.arange(table.num_rows), mask=np.full(table.num_rows, not is_new)))
        for table, is_new in ((old, False), (new, True))
    )
    found = both.group_by(key, use_threads=False).aggregate([("\0old", "max"), ("\0new", "max")])
    return found.select(["\0old_max", "\0new_max"]).rename_columns(["old", "new"]).combine_chunks()


def _change_table(schema: ViewSchema, old: pa.Table, new: pa.Table, numbers: pa.Table) -> pa.Table:
    """Rows that go and have no successor first, then those that are new or take another's place."""
    gone = numbers.filter(pc.is_null(numbers["new"]))
    here = numbers.filter(pc.is_valid(numbers["new"])).sort_by("new")
    parts = []
    for rows, kind in ((gone, ChangeKind.RETRACTION), (here, ChangeKind.UPDATE)):
        before, after = _rows(schema, old, rows["old"]), _rows(schema, new, rows["new"])
        shown = after if kind is ChangeKind.UPDATE else before
        keys = dict(zip(shown.type.names, shown.flatten(), strict=True))
        parts.append(
            pa.table(
                {
                    **{name: keys[name] for name in schema.key},
                    "kind": pa.repeat(pa.scalar(int(kind), pa.int8()), rows.num_rows),
                    "before": before,
                    "after": after,
                }
            )
        )
    return pa.concat_tables(parts)


def _rows(schema: ViewSchema, table: pa.Table, numbers: pa.ChunkedArray) -> pa.StructArray:
    """Rows of a table by their numbers, as structs of the view's columns; null where there is none."""
    numbers = pa.concat_arrays(numbers.chunks or [pa.array([], pa.int64())])
    columns = [
        pa.concat_arrays(table[each.name].cast(each.type).chunks or [pa.array([], each.type)]).take(numbers)
        for each in schema.columns
    ]
    mask = pc.is_null(numbers) if numbers.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(schema.columns), mask=mask)


@dataclass(slots=True, kw_only=True)
class GraphSink:
    """The sink of one dataflow; called by Spark on the driver, batch after batch, in order.

    Dead and late records before the offsets of `side_offsets`, by `place`, are on their topics already.
    """

    planned: PlannedGraph
    app_name: str
    query_id: str
    stores: Mapping[str, ViewWriter]
    records: OutputWriter
    commit_progress: Callable[[GraphBatch, int | None], None]
    on_batch: Callable[[BatchReport], None] = ignore
    on_step: Callable[[str], None] = ignore
    side_offsets: Mapping[str, int] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)  # of topics that take less than asked
    _clock: SourceClock | None = None

    def __call__(self, messages: Iterable[Message], batch_id: int) -> None:
        batch = collect_graph(self.planned, messages)
        watermarks = self._watermarks(batch)
        is_known = len(watermarks) == len(self.planned.graph.sources)
        watermark_us = min(watermarks.values(), default=None) if is_known else None
        name, inputs, counts = self.planned.view.name, self._by_input(batch), self._counts(batch)
        changes = weighted_changes(self.planned.schema, batch.rows)
        changes, aside = without_misfits(self.stores[name], self.planned.schema, changes)
        if aside is not None:
            batch.unfit.setdefault(len(self.planned.graph.edges) - 1, []).append(aside)
        self.on_step(f"view {name}")
        self.stores[name].apply(
            name,
            ViewBatch(
                query_id=self.query_id,
                batch_id=batch_id,
                changes=changes,
                offsets=batch.offsets(),
                watermark_us=watermark_us,
                counters=counts,
                distinct=True,
                inputs=inputs,
                watermarks=watermarks,
            ),
        )
        self.on_step("records")
        write_fitting(self.records, batch_id, self.limits, lambda: self._asides(batch))
        self.on_step("progress")
        self.commit_progress(batch, watermark_us)
        self.on_step("done")
        self.on_batch(
            BatchReport(
                query=self.planned.name,
                batch_id=batch_id,
                records=batch.records,
                watermark_us=watermark_us,
                following={
                    place(topic, partition): next_
                    for topic, ends in batch.offsets().items()
                    for partition, next_ in ends.items()
                },
                counters={name: counts},
                inputs={name: inputs},
                changed={name: 0 if changes is None else changes.num_rows},
            )
        )

    def _watermarks(self, batch: GraphBatch) -> dict[str, int]:
        """That of each topic that has one: by its stages, or, where there are none, as this run has seen."""
        topics = [each.spec.topic for each in self.planned.graph.sources]
        if batch.clock:
            return {topic: each for topic, each in batch.clock.items() if each > NO_WATERMARK}
        if self._clock is None:
            self._clock = SourceClock.new(len(topics))
        marks: list[list[Mark]] = [[] for _ in topics]
        for (topic, _), mark in sorted(batch.marks.items()):
            marks[topics.index(topic)].append(mark)
        self._clock.advance(marks)
        reached = zip(topics, self._clock.watermarks, strict=True)
        return {topic: each for topic, each in reached if each > NO_WATERMARK}

    def _counts(self, batch: GraphBatch) -> Counter[str]:
        """What became of the records of all inputs, of each once for every edge that reads its topic."""
        found: Counter[str] = Counter()
        for each in batch.counts.values():
            found.update({name: count for name, count in each.items() if name not in (*BY_CLOCK, HIDDEN)})
        for topic in self.planned.input_names.values():
            found.update(_of_topic(batch, topic.topic))
        return +found

    def _by_input(self, batch: GraphBatch) -> dict[str, Counter[str]]:
        """What became of the records of each input; and of rows that went from one operator to the next.

        On time + corrected + dropped + filtered + dead + repeated + declared is what was read.
        """
        found: dict[str, Counter[str]] = {}
        for number, each in self.planned.input_names.items():
            counted = Counter(batch.counts.get(number, {}))
            counted.update(_of_topic(batch, each.topic))
            found[each.name] = +counted
        for number, counts in sorted(batch.counts.items()):
            if number not in self.planned.input_names:
                place, _ = self.planned.graph.consumer(number)
                own = {name: count for name, count in counts.items() if name != "on_time"}
                found.setdefault(self.planned.graph.nodes[place].name, Counter()).update(own)
        return {name: each for name, each in found.items() if each}

    def _asides(self, batch: GraphBatch) -> Iterator[OutputRecord]:
        """Dead and late records; of a topic of letters they stand on the log as what they are already."""
        app, graph = self.app_name, self.planned.graph
        own = dead_topic(app), late_topic(app)
        letters, late_ones = (self.limits.get(each, LARGEST_RECORD_BYTES) for each in own)
        for source, tables in sorted(batch.dead.items()):
            topic = graph.sources[source].spec.topic
            if topic not in own:
                new = unwritten(tables, of_topic(self.side_offsets, topic), "partition", "offset")
                yield from dead_records(app, topic, self.query_id, new, most_bytes=letters)
        for number, tables in sorted(batch.late.items()):
            for topic, whole in self._by_topic(number, map(_whole, self._new(number, tables))):
                if topic not in own:
                    yield from dropped_records(
                        app, topic, self.planned.view.name, whole, most_bytes=late_ones
                    )
        for number, tables in sorted(batch.failed.items()):
            steps = in_words(self.planned.steps[number])
            for topic, failed in self._by_topic(number, self._new(number, tables)):
                if topic not in own:
                    yield from failed_records(
                        app, topic, self.planned.view.name, self.query_id, steps, failed, most_bytes=letters
                    )

        for number, tables in sorted(batch.unfit.items()):
            topic = graph.driving_topic(graph.edges[number].producer)
            yield from unfit_records(app, topic, self.planned.view.name, tables, most_bytes=letters)

    def _new(self, number: int, tables: Sequence[pa.Table]) -> Iterator[pa.Table]:
        """Rows of an edge that are not on their topic yet; of rows that an operator made, all of them."""
        known = self.planned.input_names.get(number)
        if known is None:
            return iter(tables)
        return unwritten(tables, of_topic(self.side_offsets, known.topic), "_partition", "_offset")

    def _by_topic(self, number: int, tables: Iterable[pa.Table]) -> Iterator[tuple[str, list[pa.Table]]]:
        """Rows of an edge by the topics whose records drive them."""
        graph, found = self.planned.graph, dict[str, list[pa.Table]]()
        for table in tables:
            for topic, rows in graph.origins(graph.edges[number].producer, table):
                found.setdefault(topic, []).append(rows)
        yield from found.items()


def _of_topic(batch: GraphBatch, topic: str) -> dict[str, int]:
    """What became of records that no row was made of."""
    marks = [mark for (name, _), mark in batch.marks.items() if name == topic]
    return {name: sum(getattr(mark, name) for mark in marks) for name in (*OF_STREAM, SKIPPED)}


def _whole(table: pa.Table) -> pa.Table:
    """Late rows with the key and value of their records; of rows that were made, the row as JSON."""
    if "value" in table.column_names:
        return table
    from headrace.views import dumps, rows_to_json

    own = [name for name in table.column_names if name not in (*STAMPS, "_reason")]
    values: list[Any] = [dumps(row).encode() for row in rows_to_json(table.select(own))]
    stamps = {name: table[name] for name in STAMPS if name != WEIGHT}
    nulls = pa.nulls(table.num_rows, pa.binary())
    reasons = {"_reason": table["_reason"]} if "_reason" in table.column_names else {}
    return pa.table({**stamps, **reasons, "key": nulls, "value": pa.array(values, pa.binary())})
