"""The sink of a task of a dataflow: its part of a batch is written from its executor, exactly once.

As with the tasks of a stream (`headrace.app.query.sinks.task_sink`). Rows of a view are brought together
by the view's key before, so that a slot has all that a batch makes of a key.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from headrace.app.query.sinks.graph_batch import collect_graph, weighted_changes
from headrace.app.query.sinks.graph_records import GraphRecords
from headrace.app.query.sinks.sink import ViewWriter
from headrace.app.query.sinks.task_sink import SlotRecords
from headrace.streams.engine import BlobKind, Message, encode_json
from headrace.views import Stager, StagingStore, ViewSchema, without_misfits

__all__ = ["GraphTaskSink", "stager_of"]

_ASIDES = (BlobKind.LATE, BlobKind.FORGOTTEN, BlobKind.UNFIT, BlobKind.FAILED, BlobKind.DEAD)


def stager_of(writer: ViewWriter, schema: ViewSchema) -> Stager | None:
    """What brings a view's changes to its store; None for one to which only the driver writes."""
    return writer.stager(schema) if isinstance(writer, StagingStore) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTaskSink:
    """Takes the results of a task, writes what goes to topics and to the view, and passes on the rest."""

    made: GraphRecords
    records: SlotRecords
    schema: ViewSchema
    stager: Stager | None

    def __call__(self, slot: int, batch_id: int, messages: Iterator[Message]) -> Iterator[Message]:
        view_edge = len(self.made.graph.edges) - 1
        own: list[Message] = []
        others: list[Message] = []
        for message in messages:
            is_row = message.kind is BlobKind.ROWS and self.stager is not None
            (own if message.kind in _ASIDES or is_row else others).append(message)
        batch = collect_graph(view_edge, own)
        changes = weighted_changes(self.schema, batch.rows)
        if self.stager is not None:
            changes, aside = without_misfits(self.stager, self.schema, changes)
            if aside is not None:
                batch.unfit.setdefault(view_edge, []).append(aside)
        if batch.late or batch.dead or batch.failed or batch.unfit:
            self.records.write(slot, batch_id, lambda limits: self.made.make(batch, limits))
        yield from others
        if self.stager is not None and changes is not None and changes.num_rows:
            staged = self.stager.stage(changes, batch_id=batch_id, distinct=True)
            yield Message(0, view_edge, BlobKind.STAGED, encode_json(asdict(staged)))
