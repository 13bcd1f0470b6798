"""The records that a batch of a dataflow writes to topics: dead and late ones; no I/O.

They are made where the rows are, by the driver or by each task for its own part of the batch, so a
`GraphRecords` is plain data that can be sent there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.app.plan.dataflow import InputName, PlannedGraph
from headrace.app.plan.names import dead_topic, late_topic
from headrace.app.query.places import of_topic
from headrace.app.query.sinks.batch_records import in_words, unwritten
from headrace.app.query.sinks.side_topics import SideTopics
from headrace.client.write import OutputRecord
from headrace.streams.operators import STAMPS, WEIGHT

if TYPE_CHECKING:
    from headrace.app.query.sinks.graph_batch import GraphBatch
    from headrace.streams.dataflow import Graph

__all__ = ["GraphRecords"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRecords:
    """Makes the records of a batch, or of a part of one.

    `words` says what the steps of an edge do. Dead and late records before the offsets of `side_offsets`,
    by `place`, are on their topics already.
    """

    app: str
    view: str
    query_id: str
    graph: "Graph"
    inputs: Mapping[int, InputName]
    words: Mapping[int, Sequence[str]]
    side_offsets: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, app: str, planned: PlannedGraph, query_id: str, side_offsets: Mapping[str, int]
    ) -> "GraphRecords":
        """For the query of a view."""
        return cls(
            app=app,
            view=planned.view.name,
            query_id=query_id,
            graph=planned.graph,
            inputs=planned.input_names,
            words={number: in_words(steps) for number, steps in planned.steps.items()},
            side_offsets=side_offsets,
        )

    def make(self, batch: "GraphBatch", limits: Mapping[str, int]) -> Iterator[OutputRecord]:
        """Dead and late records; of a topic of letters they stand on the log as what they are already.

        `limits` has what topics take that take less than is asked.
        """
        graph, view, query = self.graph, self.view, self.query_id
        topics, own = SideTopics(self.app, limits), (dead_topic(self.app), late_topic(self.app))
        for source, tables in sorted(batch.dead.items()):
            topic = graph.sources[source].spec.topic
            if topic not in own:
                new = unwritten(tables, of_topic(self.side_offsets, topic), "partition", "offset")
                yield from topics.dead(topic, query, new)
        for number, tables in sorted(batch.late.items()):
            for topic, whole in self._by_topic(number, map(_whole, self._new(number, tables))):
                if topic not in own:
                    yield from topics.dropped(topic, view, whole)
        for number, tables in sorted(batch.failed.items()):
            steps = list(self.words.get(number, ()))
            for topic, failed in self._by_topic(number, self._new(number, tables)):
                if topic not in own:
                    yield from topics.failed(topic, view, query, steps, failed)
        for number, tables in sorted(batch.unfit.items()):
            yield from topics.unfit(graph.driving_topic(graph.edges[number].producer), view, tables)

    def _new(self, number: int, tables: Sequence[pa.Table]) -> Iterator[pa.Table]:
        """Rows of an edge that are not on their topic yet; of rows that an operator made, all of them."""
        known = self.inputs.get(number)
        if known is None:
            return iter(tables)
        return unwritten(tables, of_topic(self.side_offsets, known.topic), "_partition", "_offset")

    def _by_topic(self, number: int, tables: Iterable[pa.Table]) -> Iterator[tuple[str, list[pa.Table]]]:
        """Rows of an edge by the topics whose records drive them."""
        graph, found = self.graph, dict[str, list[pa.Table]]()
        for table in tables:
            for topic, rows in graph.origins(graph.edges[number].producer, table):
                found.setdefault(topic, []).append(rows)
        yield from found.items()


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
