"""One view over several topics under test: its topics are lists, and its stages run in this process."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.app.plan import PlannedGraph
from headrace.app.query import GraphSink
from headrace.streams.dataflow import (
    SourcePacker,
    StageBatch,
    StageOperators,
    advance_stage,
    graph_heartbeat,
    pack_edges,
    stepped_edges,
    unpack_rows,
    wide_schema,
)
from headrace.streams.engine import Message, SpillFiles, read_messages, to_batch
from headrace.testing.topic_feed import RUN, RecordList, TopicFeed
from headrace.views import ViewStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["GraphRun"]

_CARRIED = SpillFiles()  # one process: no blob goes by a file


class GraphRun:
    """Reads its topics as the joint feed does, batch by batch, and updates the view."""

    def __init__(
        self,
        app_name: str,
        planned: PlannedGraph,
        store: ViewStore,
        records: RecordList,
        now_us: int,
        spark: "SparkSession | None",
    ) -> None:
        self.planned = planned
        self._graph = replace(planned.graph, buckets=1)
        self._steps = planned.steps
        self._spark = spark
        self._heartbeat = graph_heartbeat(self._graph)
        self.feeds = {
            source.spec.topic: TopicFeed(source.spec, rows.partitions, self._heartbeat, now_us)
            for source, rows in zip(self._graph.sources, planned.inputs, strict=True)
        }
        self._states = [
            StageOperators(self._graph, stage).new_states() for stage in range(len(self._graph.stages))
        ]
        self._batches = 0
        store.prepare(planned.schema)
        store.begin(planned.view.name, RUN, schema=planned.schema)
        self._sink = GraphSink(
            planned=planned,
            app_name=app_name,
            query_id=RUN,
            stores={planned.view.name: store},
            records=records,
            commit_progress=lambda _batch, _watermark_us: None,
        )

    @property
    def patience_us(self) -> int:
        """The silence after which nothing is held any more."""
        return self._heartbeat.until_us + self._heartbeat.interval_us

    def step(self, now_us: int) -> None:
        """The micro-batch that is due now, if one is: a range of every topic, as the joint feed plans it."""
        due = {topic: feed.due(now_us) for topic, feed in self.feeds.items()}
        if all(each is None for each in due.values()):
            return
        messages: list[Message] = []
        for number, (topic, feed) in enumerate(self.feeds.items()):
            packer = SourcePacker(self._graph, number, _CARRIED)
            for stamped, mark in feed.read(due[topic] or feed.standing()):
                messages += _listed(packer.pack(stamped))
                messages += _listed(packer.finish(mark))
        sources = range(len(self._graph.sources))
        messages = self._projected(messages, sources)
        for stage, places in enumerate(self._graph.stages):
            messages = self._advanced(stage, messages)
            messages = self._projected(messages, [len(sources) + place for place in places])
        self._sink(messages, self._batches)
        self._batches += 1

    def _advanced(self, stage: int, messages: Sequence[Message]) -> list[Message]:
        batch = StageBatch(self._graph, stage)
        for each in messages:
            batch.add(each)
        out, _ = advance_stage(self._states[stage], 0, batch)
        return out

    def _projected(self, messages: list[Message], producers: Sequence[int]) -> list[Message]:
        """The messages, with the rows of these producers through the steps that Spark computes."""
        numbers = stepped_edges(self._graph, producers)
        if not numbers:
            return messages
        from headrace.streams.dataflow import project_edges

        assert self._spark is not None
        schema = wide_schema(self._graph, sorted({self._graph.edges[each].producer for each in numbers}))
        rows = pa.Table.from_batches(unpack_rows(schema, _CARRIED, [to_batch(messages)]), schema)
        frame = project_edges(self._spark.createDataFrame(rows), self._graph, self._steps, numbers)
        return _listed(pack_edges(self._graph, numbers, _CARRIED, frame.toArrow().to_batches()))


def _listed(batches: Iterator[pa.RecordBatch]) -> list[Message]:
    return [message for batch in batches for message in read_messages(batch)]
