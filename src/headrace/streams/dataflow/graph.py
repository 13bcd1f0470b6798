"""A query as a graph: topics in, operators between, views out. Plain values; nothing here runs.

Producers are numbered, sources first and then nodes, so that a node's inputs come before it. An
*edge* carries the rows of one producer to one consumer, through the steps of the user, which
only Spark understands and which are kept beside the graph (`GraphQuery`). Edges are numbered in
the order of their consumers: the nodes', then the views'.

    source 0 ──┐
               ├── node 2 ──┬── node 3 ── view "per region"
    source 1 ──┘            └── view "orders with customers"

A *stage* is all nodes that are equally far from the sources: what can be computed between two shuffles.
Every stage has the same buckets, and its state lies under its number and theirs. Where all rows are
already where the next stage wants them, there is no shuffle before it (`shuffles`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from headrace.streams.event_time import NO_WATERMARK, Mark, operator_watermark
from headrace.streams.feed.positions import Heartbeat
from headrace.streams.operators import Held, Operator, Union
from headrace.streams.spec import DELETED, StreamSpec

__all__ = [
    "Edge",
    "Graph",
    "Node",
    "SourceClock",
    "TopicSource",
    "ViewOutput",
    "graph_heartbeat",
    "producer_watermarks",
    "stepped_edges",
]

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """A topic as rows: which columns the feed gives, stamps aside, and how it reads them."""

    spec: StreamSpec
    schema: pa.Schema
    table_key: tuple[str, ...] = ()  # of a topic of upserts and deletes


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Rows of a producer on their way to a consumer; `schema` is behind the steps, stamps aside.

    Of versions of a table's rows, behind steps, `versions_by` is the key: its names there and before.
    One that the steps leave out goes on as a delete, for it ends the version before it. `kept` are the
    columns that the steps leave as they are, likewise.
    """

    producer: int
    schema: pa.Schema
    has_steps: bool = False
    versions_by: tuple[tuple[str, str], ...] = ()
    kept: tuple[tuple[str, str], ...] = ()

    @property
    def projected(self) -> list[str]:
        """The columns that steps give."""
        return [name for name in self.schema.names if not (self.versions_by and name == DELETED)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An operator and what it reads; `name` is what people call it."""

    name: str
    operator: Operator
    edges: tuple[Edge, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns of what it puts out, stamps aside."""
        return self.operator.result([each.schema for each in self.edges])


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOutput:
    """Where changes come out."""

    name: str
    edge: Edge


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Everything that one query computes.

    `view_keys` are the columns by which the rows of the view come together, where its tasks write it.
    """

    sources: tuple[TopicSource, ...]
    nodes: tuple[Node, ...]
    views: tuple[ViewOutput, ...]
    buckets: int = 8
    view_keys: tuple[str, ...] = ()

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """All edges, by their number."""
        return tuple(edge for _, _, edge in self._consumed())

    @cached_property
    def first_edge(self) -> Mapping[int, int]:
        """The number of the first edge of each node, by the node's place; the views' come last."""
        found: dict[int, int] = {}
        for number, (consumer, _, _) in enumerate(self._consumed()):
            found.setdefault(consumer, number)
        return found

    def consumer(self, edge: int) -> tuple[int, int]:
        """Who reads an edge: the node's place and the number of its input; views are behind the nodes."""
        place, number, _ = self._consumers[edge]
        return place, number

    def keys_of(self, edge: int) -> Sequence[str] | None:
        """The columns by which the rows of an edge come together; None if they stay where they are."""
        place, read = self.consumer(edge)
        return self.view_keys or None if place >= len(self.nodes) else self.nodes[place].operator.inputs[read]

    def edges_of(self, producer: int) -> list[int]:
        """The edges that carry a producer's rows."""
        return [number for number, edge in enumerate(self.edges) if edge.producer == producer]

    def schema_of(self, producer: int) -> pa.Schema:
        """The columns of a producer's rows, stamps aside."""
        count = len(self.sources)
        if producer < count:
            return self.sources[producer].schema
        return self.nodes[producer - count].schema

    def origins(self, producer: int, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """By topic, of a producer's rows those that it drives, with the stamps of its records."""
        if producer < len(self.sources):
            yield self.sources[producer].spec.topic, rows
            return
        node = self.nodes[producer - len(self.sources)]
        if not isinstance(node.operator, Union):
            yield from self.origins(node.edges[0].producer, rows)
            return
        for number, edge in enumerate(node.edges):
            mine = node.operator.of_input(number, rows)
            if mine.num_rows:
                yield from self.origins(edge.producer, mine)

    def driving_topic(self, producer: int) -> str:
        """The topic whose records drive a producer's rows; of a union, that of its first input."""
        while producer >= len(self.sources):
            producer = self.nodes[producer - len(self.sources)].edges[0].producer
        return self.sources[producer].spec.topic

    @cached_property
    def stages(self) -> tuple[tuple[int, ...], ...]:
        """The places of the nodes of each stage, in order."""
        depths: list[int] = [0] * len(self.sources)
        for node in self.nodes:
            depths.append(1 + max(depths[edge.producer] for edge in node.edges))
        by_node = depths[len(self.sources) :]
        last = max(by_node, default=0)
        return tuple(
            tuple(place for place, depth in enumerate(by_node) if depth == stage)
            for stage in range(1, last + 1)
        )

    @cached_property
    def stage_of(self) -> Mapping[int, int]:
        """The stage of each node, by its place."""
        return {place: stage for stage, places in enumerate(self.stages) for place in places}

    @cached_property
    def _consumers(self) -> tuple[tuple[int, int, Edge], ...]:
        return tuple(self._consumed())

    def _consumed(self) -> Iterator[tuple[int, int, Edge]]:
        for place, node in enumerate(self.nodes):
            yield from ((place, number, edge) for number, edge in enumerate(node.edges))
        for number, view in enumerate(self.views):
            yield len(self.nodes) + number, 0, view.edge


@dataclass(slots=True)
class SourceClock:
    """The event-time watermark of each source, as far as a bucket has come; never goes back."""

    watermarks: list[int]

    @classmethod
    def new(cls, sources: int) -> "SourceClock":
        return cls([NO_WATERMARK] * sources)

    def advance(self, marks: Sequence[Sequence[Mark]]) -> None:
        """Moves on by the marks of one batch, by source.

        A source that has been silent for long enough holds nobody up: it is taken to be as
        far as the one that is furthest.
        """
        found = [operator_watermark(each) for each in marks]
        known = [each for each in found if each is not None]
        furthest = max(known, default=NO_WATERMARK)
        for number, each in enumerate(found):
            own = NO_WATERMARK if each is None else each
            if marks[number] and _is_idle(marks[number]):
                own = furthest
            self.watermarks[number] = max(self.watermarks[number], own)

    def held(self) -> tuple[Held, ...]:
        return ()

    def snapshot(self) -> bytes:
        return ",".join(map(str, self.watermarks)).encode()

    def replay(self, stored: bytes) -> None:
        self.watermarks = [int(each) for each in stored.split(b",")]


def _is_idle(marks: Sequence[Mark]) -> bool:
    """All partitions of the source are idle, those that never had a record included."""
    return set(marks[0].times) | {mark.partition for mark in marks} <= marks[0].idle


def stepped_edges(graph: Graph, producers: Iterable[int]) -> list[int]:
    """The edges of these producers whose rows Spark projects."""
    return [
        number
        for producer in producers
        for number in graph.edges_of(producer)
        if graph.edges[number].has_steps
    ]


def graph_heartbeat(graph: Graph) -> Heartbeat:
    """Often enough to be prompt, until nothing can be held any more."""
    held = sum(node.operator.delay_us for node in graph.nodes)
    waits = max(each.spec.lateness_us + each.spec.idle_after_us for each in graph.sources)
    return Heartbeat(interval_us=_SECOND_US, until_us=held + waits + 2 * _SECOND_US)


def producer_watermarks(graph: Graph, sources: Sequence[int]) -> list[int]:
    """The watermark of every producer: that of its slowest input, less what its operator holds back."""
    found = list(sources)
    for node in graph.nodes:
        least = min(found[edge.producer] for edge in node.edges)
        found.append(max(least - node.operator.delay_us, NO_WATERMARK) if least > NO_WATERMARK else least)
    return found
