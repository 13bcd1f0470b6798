"""What is done with a batch of a dataflow: its view, records that fell aside, progress.

As with other queries, each place keeps the batch's number together with what it writes, so that a
batch which is given again changes only the places that had not seen it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from headrace.app.plan.dataflow import PlannedGraph
from headrace.app.query.places import place
from headrace.app.query.sinks.counters import BY_CLOCK, HIDDEN, OF_STREAM, SKIPPED
from headrace.app.query.sinks.graph_batch import GraphBatch, collect_graph, weighted_changes
from headrace.app.query.sinks.graph_records import GraphRecords
from headrace.app.query.sinks.sink import OutputWriter, ViewWriter, ignore, write_fitting
from headrace.app.status.batch_report import BatchReport
from headrace.streams import NO_WATERMARK, Mark
from headrace.streams.dataflow import SourceClock
from headrace.streams.engine import Message
from headrace.views import ViewBatch, without_misfits

__all__ = ["GraphSink"]


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
    _made: GraphRecords = field(init=False)

    def __post_init__(self) -> None:
        self._made = GraphRecords.of(self.app_name, self.planned, self.query_id, self.side_offsets)

    def __call__(self, messages: Iterable[Message], batch_id: int) -> None:
        batch = collect_graph(len(self.planned.graph.edges) - 1, messages)
        watermarks = self._watermarks(batch)
        is_known = len(watermarks) == len(self.planned.graph.sources)
        watermark_us = min(watermarks.values(), default=None) if is_known else None
        name, inputs, counts = self.planned.view.name, self._by_input(batch), self._counts(batch)
        changes = weighted_changes(self.planned.schema, batch.rows)
        changes, aside = without_misfits(self.stores[name], self.planned.schema, changes)
        if aside is not None:
            batch.unfit.setdefault(len(self.planned.graph.edges) - 1, []).append(aside)
        self.on_step(f"view {name}")
        of_view = ViewBatch(
            query_id=self.query_id,
            batch_id=batch_id,
            changes=changes,
            offsets=batch.offsets(),
            watermark_us=watermark_us,
            counters=counts,
            distinct=True,
            inputs=inputs,
            watermarks=watermarks,
            staged=tuple(batch.staged),
        )
        self.stores[name].apply(name, of_view)
        self.on_step("records")
        write_fitting(self.records, batch_id, self.limits, lambda: self._made.make(batch, self.limits))
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
                changed={name: of_view.changed},
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


def _of_topic(batch: GraphBatch, topic: str) -> dict[str, int]:
    """What became of records that no row was made of."""
    marks = [mark for (name, _), mark in batch.marks.items() if name == topic]
    return {name: sum(getattr(mark, name) for mark in marks) for name in (*OF_STREAM, SKIPPED)}
