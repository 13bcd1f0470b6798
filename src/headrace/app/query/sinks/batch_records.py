"""The records that a batch of a query writes to topics: dead, late and derived ones; no I/O.

They are made where the rows are: by the driver, or by each task on its executor for its own part
of the batch. So a `BatchRecords` is plain data that can be sent there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.app.plan.names import dead_topic, late_topic
from headrace.app.plan.plan import PlannedStream
from headrace.app.query.sinks.batch_output import BatchOutput
from headrace.app.query.sinks.side_topics import RowTopic, SideTopics
from headrace.client.write import OutputRecord

if TYPE_CHECKING:
    from headrace.streams.engine import Step

__all__ = ["BatchRecords", "ViewRecords", "in_words", "unwritten"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewRecords:
    """What is said of one view in records: its name, its steps in words, and its topic of rows, if any."""

    name: str
    steps: tuple[str, ...] = ()
    rows: RowTopic | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecords:
    """Makes the records of a batch, or of a part of one.

    Dead and late records before the offsets of `side_offsets` are on their topics already.
    """

    app: str
    topic: str
    query_id: str
    views: tuple[ViewRecords, ...]
    side_offsets: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, app: str, planned: PlannedStream, query_id: str, side_offsets: Mapping[int, int]
    ) -> "BatchRecords":
        """For the query of a stream with all its views."""
        views = tuple(
            ViewRecords(
                name=each.view.name,
                steps=tuple(in_words(each.steps)) if each.steps else (),
                rows=RowTopic.of(each) if each.view.topic is not None and not each.plan.operator else None,
            )
            for each in planned.views
        )
        return cls(app=app, topic=planned.name, query_id=query_id, views=views, side_offsets=side_offsets)

    def make(self, output: BatchOutput, limits: Mapping[str, int]) -> Iterator[OutputRecord]:
        """Everything that goes to topics; `limits` has what topics take that take less than is asked."""
        topics = SideTopics(self.app, limits)
        if self.topic not in (dead_topic(self.app), late_topic(self.app)):
            yield from self._asides(output, topics)
        for number, view in enumerate(self.views):
            if view.rows is not None:
                yield from topics.derived(view.rows, output.rows.get(number, ()))

    def _asides(self, output: BatchOutput, topics: SideTopics) -> Iterator[OutputRecord]:
        """Dead and late records; those of a stream of letters stand on the log as what they are already."""
        topic, query = self.topic, self.query_id
        yield from topics.dead(topic, query, unwritten(output.dead, self.side_offsets, "partition", "offset"))
        for number, view in enumerate(self.views):
            late = unwritten(output.late.get(number, ()), self.side_offsets, "_partition", "_offset")
            yield from topics.late(topic, view.name, late)
            yield from topics.forgotten(topic, view.name, output.forgotten.get(number, ()))
            yield from topics.unfit(topic, view.name, output.unfit.get(number, ()))
            failed = unwritten(output.failed.get(number, ()), self.side_offsets, "_partition", "_offset")
            yield from topics.failed(topic, view.name, query, view.steps, failed)


def in_words(steps: "Iterable[Step]") -> list[str]:
    """What each step does."""
    from headrace.streams.engine import step_in_words  # needs PySpark, as do the steps

    return [step_in_words(step) for step in steps]


def unwritten(
    tables: Sequence[pa.Table], side_offsets: Mapping[int, int], partition: str, offset: str
) -> Iterator[pa.Table]:
    """The rows at or behind the offsets of their partitions; `partition` and `offset` name the columns."""
    for table in tables:
        kept = [
            next_ >= side_offsets.get(each, 0)
            for each, next_ in zip(table[partition].to_pylist(), table[offset].to_pylist(), strict=True)
        ]
        yield table if all(kept) else table.filter(pa.array(kept))
