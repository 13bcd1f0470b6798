"""One batch of one bucket of a stage: its messages in, its nodes' changes out. No Spark.

Messages are those of `messages`, with the number of an edge where others have a view's. Rows
that go through steps of the user travel as their producer put them out, under a number of
their own (`raw`), until Spark has projected them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.streams.dataflow.graph import Graph, SourceClock, producer_watermarks
from headrace.streams.engine.messages import (
    ALL_VIEWS,
    BlobKind,
    Message,
    decode_json,
    decode_table,
    encode_json,
    encode_table,
)
from headrace.streams.event_time import Mark
from headrace.streams.operators import STAMPS, State, pack_buckets

__all__ = [
    "StageBatch",
    "StageOperators",
    "advance_stage",
    "edge_messages",
    "producer_messages",
    "raw",
    "raw_producer",
]

_RAW = -2  # and below: rows of producer 0, 1, …


def raw(producer: int) -> int:
    """The number under which a producer's rows travel before the steps of their edges."""
    return _RAW - producer


def raw_producer(number: int) -> int | None:
    """The producer behind such a number; None for the number of an edge, or of all views."""
    return _RAW - number if number <= _RAW else None


@dataclass(slots=True)
class StageBatch:
    """The messages of one bucket and batch, sorted by what a stage does with them."""

    graph: Graph
    stage: int
    marks: list[Mark] = field(default_factory=list)
    rows: dict[int, list[pa.Table]] = field(default_factory=dict)
    passed_on: list[Message] = field(default_factory=list)

    @classmethod
    def of(cls, graph: Graph, stage: int, bucket: int, messages: Iterable[Message]) -> "StageBatch":
        """Raises RuntimeError if something was sent here that is another bucket's."""
        batch = cls(graph, stage)
        for message in messages:
            if message.bucket != bucket:
                raise RuntimeError(f"a message for bucket {message.bucket} came to bucket {bucket}")
            batch.add(message)
        if not batch.marks:
            raise RuntimeError(f"bucket {bucket} has rows in a task that has no marks for it")
        return batch

    def add(self, message: Message) -> None:
        _, number, kind, blob = message
        if kind is BlobKind.MARK:
            self.marks.append(Mark.from_json(decode_json(blob)))
        elif kind is BlobKind.ROWS and self._is_own(number):
            self.rows.setdefault(number, []).append(decode_table(blob))
        else:
            self.passed_on.append(message)

    def arrived(self, place: int) -> list[pa.Table | None]:
        """What came by each input of a node."""
        first = self.graph.first_edge[place]
        return [
            pa.concat_tables(tables) if (tables := self.rows.get(first + number)) else None
            for number in range(len(self.graph.nodes[place].edges))
        ]

    def marks_by_source(self) -> list[list[Mark]]:
        topics = {source.spec.topic: number for number, source in enumerate(self.graph.sources)}
        found: list[list[Mark]] = [[] for _ in topics]
        for mark in self.marks:
            found[topics[mark.topic]].append(mark)
        return found

    def _is_own(self, number: int) -> bool:
        if number < 0:
            return False
        place, _ = self.graph.consumer(number)
        return self.graph.stage_of.get(place) == self.stage


@dataclass(frozen=True, slots=True)
class StageOperators:
    """What makes the states of one bucket of a stage: the clock of its sources, then its nodes'."""

    graph: Graph
    stage: int

    def new_states(self) -> "list[SourceClock | State]":
        nodes = [self.graph.nodes[place] for place in self.graph.stages[self.stage]]
        return [
            SourceClock.new(len(self.graph.sources)),
            *(node.operator.new_state([each.schema for each in node.edges]) for node in nodes),
        ]


def advance_stage(
    states: "Sequence[SourceClock | State]", bucket: int, batch: StageBatch
) -> tuple[list[Message], list[bytes]]:
    """Moves one bucket on: the messages that come of it, and what replays it, a blob for each state."""
    graph = batch.graph
    clock, *nodes = states
    assert isinstance(clock, SourceClock)
    clock.advance(batch.marks_by_source())
    watermarks = producer_watermarks(graph, clock.watermarks)
    out: list[Message] = list(batch.passed_on)
    deltas = [clock.snapshot()]
    for place, state in zip(graph.stages[batch.stage], nodes, strict=True):
        assert not isinstance(state, SourceClock)
        first = graph.first_edge[place]
        step = state.advance(
            batch.arrived(place), [watermarks[edge.producer] for edge in graph.nodes[place].edges]
        )
        deltas.append(step.delta)
        for number, counts in step.counts.items():
            # Where they were read, these were counted as on time.
            elsewhere = counts.get("dropped", 0) + counts.get("corrected", 0)
            counted = {**counts, "on_time": -elsewhere}
            out.append(Message(bucket, first + number, BlobKind.COUNTERS, encode_json(counted)))
        for number, rows in step.aside.items():
            out.append(Message(bucket, first + number, BlobKind.FORGOTTEN, encode_table(rows)))
        if step.unfit is not None:
            out.append(Message(bucket, first, BlobKind.UNFIT, encode_table(step.unfit)))
        if step.changes is not None and step.changes.num_rows:
            out += producer_messages(graph, len(graph.sources) + place, bucket, step.changes)
    out += (Message(bucket, ALL_VIEWS, BlobKind.MARK, encode_json(mark.to_json())) for mark in batch.marks)
    if bucket == 0 and batch.stage == len(graph.stages) - 1:  # all buckets come to the same
        topics = [source.spec.topic for source in graph.sources]
        reached = dict(zip(topics, clock.watermarks, strict=True))
        out.append(Message(bucket, ALL_VIEWS, BlobKind.CLOCK, encode_json(reached)))
    return out, deltas


def producer_messages(graph: Graph, producer: int, bucket: int, rows: pa.Table) -> Iterator[Message]:
    """What a producer put out, for everybody who reads it."""
    numbers = graph.edges_of(producer)
    if any(graph.edges[number].has_steps for number in numbers):
        yield Message(bucket, raw(producer), BlobKind.ROWS, encode_table(rows))
    for number in numbers:
        if not graph.edges[number].has_steps:
            yield from edge_messages(graph, number, bucket, rows)


def edge_messages(graph: Graph, number: int, bucket: int, rows: pa.Table) -> Iterator[Message]:
    """Rows on an edge, to the buckets of its reader; where it has no keys, they stay with theirs."""
    rows, keys = rows.select([*graph.edges[number].schema.names, *STAMPS]), graph.keys_of(number)
    if keys is None:
        yield Message(bucket, number, BlobKind.ROWS, encode_table(rows))
        return
    yield from (
        Message(to, number, BlobKind.ROWS, blob) for to, blob in pack_buckets(rows, keys, graph.buckets)
    )
