"""Views of tables, joins and groups into graphs: one query for each view, over all topics it reads.

A query of its own for each view means that a view is added, changed or removed without touching
what others hold (decision 19).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from headrace.app.application import View
from headrace.app.diagnostics.mistakes import placed
from headrace.app.diagnostics.places import place_of
from headrace.app.keys import Key, key_behind
from headrace.app.relation import Relation, Table
from headrace.app.stream import Aggregation, Stream
from headrace.errors import ConfigError
from headrace.nearest import no_such
from headrace.streams import DELETED, rows_schema
from headrace.streams.dataflow import Edge, Graph, Node, TopicSource, ViewOutput
from headrace.streams.operators import FirstRow, LastRow, Upserts, WholeRows, WindowNode
from headrace.views import ViewSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.streams.engine import Step

__all__ = ["InputName", "PlannedGraph", "is_dataflow", "plan_graph"]

_KEEP_CLOSED_US = 3_600_000_000
_RECORD_KEY = ("_partition", "_offset")
Input = Stream | Table | Relation


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGraph:
    """One query: a view over any number of topics. `steps` are those of the graph's edges, by number.

    `is_stream` says that the view's rows happened at a time, so that the newest of a key stays.
    """

    view: View
    graph: Graph
    steps: "Mapping[int, Sequence[Step]]"
    schema: ViewSchema
    inputs: tuple[Stream | Table, ...]
    is_stream: bool

    @property
    def name(self) -> str:
        return f"view {self.view.name}"

    @property
    def picks_rows(self) -> bool:
        """Whether of several rows with the view's key one is picked: the last of a stream's, or the first."""
        producer = self.graph.views[0].edge.producer - len(self.graph.sources)
        return producer >= 0 and isinstance(self.graph.nodes[producer].operator, FirstRow | LastRow)

    @property
    def input_names(self) -> dict[int, "InputName"]:
        """The edges that read a topic, by their number; one that is read again is told by a number."""
        found: dict[int, InputName] = {}
        for number, edge in enumerate(self.graph.edges):
            if edge.producer < len(self.graph.sources):
                topic = self.graph.sources[edge.producer].spec.topic
                again = 1 + sum(each.topic == topic for each in found.values())
                found[number] = InputName(topic, topic if again == 1 else f"{topic} ({again})")
        return found


class InputName(NamedTuple):
    """An input of a view: a topic, and what its counts are called."""

    topic: str
    name: str


def is_dataflow(result: object) -> bool:
    """Whether what a view function returned takes more than one stream and its windows."""
    if isinstance(result, Aggregation):
        return isinstance(result.stream, Relation)
    return isinstance(result, Table | Relation)


def plan_graph(
    app: str, view: View, result: "Table | Relation | Aggregation", spark: "SparkSession | None"
) -> PlannedGraph:
    """The query of one view; raises ConfigError with the place in the user's file and what is wrong.

    Without a Spark, a view with steps is refused.
    """
    builder = _Builder(app, view, spark)
    builder.collect(result.stream if isinstance(result, Aggregation) else result)
    if isinstance(result, Aggregation):
        with placed(result.place or place_of(view.function), view.name):
            producer, key = builder.windows(result)
            certain: Key | None = key
            edge, is_stream = builder.whole(producer), False
            steps: Sequence[Step] = ()
    else:
        edge, steps = builder.edge(result), result.steps
        certain, key = builder.certain_key(result), builder.key(result, edge.schema)
        is_stream = isinstance(result, Relation) and result.is_stream
    with placed(place_of(view.function), view.name):
        has_place = isinstance(result, Relation) and result.is_stream and result.one_row_each
        if isinstance(result, Aggregation) and set(_RECORD_KEY) & set(key):
            if view.key:
                raise ConfigError("a view of sliding windows has a row for each row; leave its key out")
            has_place = True
        schema = _view_schema(view, edge.schema, key, has_place=has_place)
    if isinstance(result, Relation) and is_stream and view.key:
        edge = builder.last_rows(edge, steps, view.key, append_only=result.append_only)
        steps = ()
    elif not is_stream and (certain is None or not set(certain) <= set(schema.key)):
        edge = builder.first_rows(edge, steps, schema.key, certain or ())
        steps = ()
    graph = Graph(
        sources=tuple(builder.sources),
        nodes=tuple(builder.nodes),
        views=(ViewOutput(name=view.name, edge=edge),),
    )
    all_steps = [*builder.steps, steps]
    return PlannedGraph(
        view=view,
        graph=graph,
        steps={number: each for number, each in enumerate(all_steps) if each},
        schema=schema,
        inputs=tuple(builder.inputs),
        is_stream=is_stream,
    )


def _view_schema(view: View, columns: pa.Schema, key: tuple[str, ...], *, has_place: bool) -> ViewSchema:
    wanted = view.key or tuple(name for name in key)
    for name in wanted:
        if name not in columns.names and not (has_place and name in _RECORD_KEY):
            raise ConfigError("its key: " + no_such("column", name, columns.names))
    if not wanted and not has_place:
        raise ConfigError("it needs a key: @app.view(key=[…]) names the columns that tell its rows apart")
    if not wanted or set(_RECORD_KEY) <= set(wanted):
        place = [pa.field("_partition", pa.int32()), pa.field("_offset", pa.int64())]
        return ViewSchema(
            view.name, wanted or _RECORD_KEY, pa.schema([*columns, *place]), keep_changes=10_000
        )
    return ViewSchema(view.name, wanted, columns, keep_changes=10_000)


@dataclass(slots=True)
class _Builder:
    """Collects the producers of one view's graph; what is used twice is computed once."""

    app: str
    view: View
    spark: "SparkSession | None"
    sources: list[TopicSource] = field(default_factory=list)
    inputs: list[Stream | Table] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    steps: "list[Sequence[Step]]" = field(default_factory=list)  # of the nodes' edges, in order
    known: dict[int | str, int] = field(default_factory=dict)
    kept: dict[int, dict[str, str]] = field(default_factory=dict)  # columns behind the steps of rows

    def collect(self, rows: Input) -> None:
        """Numbers the sources, which come before all nodes."""
        if isinstance(rows, Relation):
            for each in rows.inputs:
                self.collect(each)
        else:
            self._source(rows)

    def producer(self, rows: Input) -> int:
        """The number of what makes these rows, before their own steps."""
        if isinstance(rows, Stream):
            return self._source(rows)
        if isinstance(rows, Table):
            return self._table(rows)
        return self._relation(rows)

    def key(self, rows: Table | Relation, columns: pa.Schema) -> Key:
        """The columns that tell rows apart, as far as is known: of those behind the steps, if they can be."""
        key = rows.key
        if isinstance(rows, Relation) and rows.is_set and not key:
            key = tuple(self._schema(self.producer(rows)).names)
        if not key and self.certain_key(rows) == ():  # one row at most: any column tells it apart
            return tuple([each.name for each in columns if not pa.types.is_nested(each.type)][:1])
        return key if set(key) <= set(columns.names) else self.certain_key(rows) or key

    def certain_key(self, rows: Input) -> Key | None:
        """The columns that certainly tell rows apart, behind their steps; None if none do."""
        if isinstance(rows, Stream):
            return None
        if isinstance(rows, Table):
            own: Key | None = rows.key
        elif rows.certain is None:
            own = None
        else:
            inputs = [self.certain_key(each) for each in rows.inputs]
            own = rows.certain(inputs, tuple(self._schema(self.producer(rows)).names))
        return key_behind(own, self.kept.get(id(rows), {}))

    def whole(self, producer: int) -> Edge:
        """All that a producer puts out."""
        return Edge(producer=producer, schema=self._schema(producer))

    def edge(self, rows: Input) -> Edge:
        """Rows behind their steps, which are put to Spark here."""
        producer = self.producer(rows)
        self.kept[id(rows)], behind = self._behind(rows, self._schema(producer))
        if not rows.steps:
            return self.whole(producer)
        kept = tuple(self.kept[id(rows)].items())
        return Edge(producer=producer, schema=behind, has_steps=True, kept=kept)

    def _behind(self, rows: Input, schema: pa.Schema) -> tuple[dict[str, str], pa.Schema]:
        """The columns behind the steps of rows; first, by their names, those that were there before."""
        kept = {name: name for name in schema.names}
        if not rows.steps:
            return kept, schema
        if self.spark is None:
            raise ConfigError(
                f"view {self.view.name!r} has where, select or with_columns, which Spark computes"
            )
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

        from headrace.app.plan.kept_columns import kept_columns, kept_through
        from headrace.streams.engine import plain_step

        frame = self.spark.createDataFrame([], from_arrow_schema(schema))
        for step, place in zip(rows.steps, rows.places, strict=True):
            with placed(place or place_of(self.view.function), self.view.name, frame.columns):
                before, frame = frame, plain_step(frame, step)
                kept = kept_through(kept, kept_columns(before, frame))
        return kept, to_arrow_schema(frame.schema, timezone="UTC")

    def windows(self, result: Aggregation) -> tuple[int, Key]:
        """Windows over a relation: the producer of their results, and the key of those."""
        relation = result.stream
        assert isinstance(relation, Relation)
        if not relation.is_stream:
            raise ConfigError("windows are for streams; a table's rows have no time of their own")
        operator = result.operator(keep_closed_us=_KEEP_CLOSED_US)
        edge = self.edge(relation)
        for name in dict.fromkeys(
            [*operator.keys, *(c for _, each in operator.aggregates for c in each.columns())]
        ):
            if name not in edge.schema.names:
                raise ConfigError(no_such("column", name, edge.schema.names))
        node = WindowNode(operator)
        return self._add(Node(name="windows", operator=node, edges=(edge,)), [relation.steps]), node.key

    def last_rows(
        self, edge: Edge, steps: "Sequence[Step]", key: tuple[str, ...], *, append_only: bool
    ) -> Edge:
        """Of rows of a stream, the last of each key."""
        node = Node(name=f"last of {', '.join(key)}", operator=LastRow(key, append_only), edges=(edge,))
        return self.whole(self._add(node, [steps]))

    def first_rows(self, edge: Edge, steps: "Sequence[Step]", key: Key, ties: Key) -> Edge:
        """Of rows of a table, the first of each key."""
        node = Node(name=f"first of {', '.join(key)}", operator=FirstRow(key, ties), edges=(edge,))
        return self.whole(self._add(node, [steps]))

    def _source(self, rows: Stream | Table) -> int:
        topic = rows.spec.topic
        if topic not in self.known:
            own = [each for each in rows_schema(rows.spec) if each.name not in _STAMPED]
            spec = replace(rows.spec, group=f"{self.app}.{self.view.name}.{topic}")
            self.known[topic] = len(self.sources)
            self.sources.append(TopicSource(spec=spec, schema=pa.schema(own), table_key=rows.spec.table_key))
            self.inputs.append(rows)
        return self.known[topic]

    def _table(self, table: Table) -> int:
        number = id(table.spec)
        if number not in self.known:
            source = self._source(table)
            edge = Edge(producer=source, schema=self.sources[source].schema)
            node = Node(
                name=f"table {table.spec.topic}", operator=Upserts(table.key, table.keep_us), edges=(edge,)
            )
            self.known[number] = self._add(node, [()])
        return self.known[number]

    def _versions(self, table: Table) -> int:
        """All versions of a table's rows; changes that leave fields out are made whole first."""
        source = self._source(table)
        if table.spec.table != "debezium":
            return source
        name = f"versions of {table.spec.topic}"
        if name not in self.known:
            edge = Edge(producer=source, schema=self.sources[source].schema)
            node = Node(name=name, operator=WholeRows(table.key, table.keep_us), edges=(edge,))
            self.known[name] = self._add(node, [()])
        return self.known[name]

    def _relation(self, relation: Relation) -> int:
        number = id(relation.make)
        if number not in self.known:
            edges = [self._input(relation, each, number) for number, each in enumerate(relation.inputs)]
            with placed(relation.place or place_of(self.view.function), self.view.name):
                if relation.looks_up is not None:
                    relation.looks_up.require_key(self.certain_key(relation.inputs[1]))
                operator = relation.make([each.schema for each in edges])
                if relation.first_of is not None:
                    operator = FirstRow(relation.first_of, self.certain_key(relation.inputs[0]) or ())
                node = Node(name=relation.name, operator=operator, edges=tuple(edges))
                node.schema  # noqa: B018 - the operator refuses what does not fit
            self.known[number] = self._add(node, list(map(_steps_of, relation.inputs, edges)))
        return self.known[number]

    def _input(self, relation: Relation, rows: Input, number: int) -> Edge:
        """An input's edge. As of a time, a stream looks rows of a table up in all their versions."""
        if relation.of_versions and isinstance(rows, Table):
            return self.whole(self._source(rows))
        if number == 0 or relation.looks_up is None or isinstance(rows, Stream):
            return self.edge(rows)
        if isinstance(rows, Table) and not (rows.steps and relation.looks_up.version == "latest"):
            return self._versions_edge(rows, self._versions(rows))
        if relation.looks_up.version == "as_of":
            return self._versions_edge(rows, self.producer(rows))
        return self.edge(rows)

    def _versions_edge(self, rows: Table | Relation, producer: int) -> Edge:
        """Versions behind the steps of their table. One that is a delete passes none of these."""
        schema = self._schema(producer)
        shown = pa.schema([each for each in schema if each.name != DELETED])
        kept, behind = self._behind(rows, shown)
        self.kept[id(rows)] = kept
        if not rows.steps:
            return self.whole(producer)
        key = tuple((name, old) for name, old in kept.items() if old in rows.key)
        columns = pa.schema([*behind, pa.field(DELETED, pa.bool_())])
        return Edge(producer=producer, schema=columns, has_steps=True, versions_by=key, kept=key)

    def _add(self, node: Node, steps: "Sequence[Sequence[Step]]") -> int:
        self.nodes.append(node)
        self.steps += steps
        return len(self.sources) + len(self.nodes) - 1

    def _schema(self, producer: int) -> pa.Schema:
        if producer < len(self.sources):
            return self.sources[producer].schema
        return self.nodes[producer - len(self.sources)].schema


def _steps_of(rows: Input, edge: Edge) -> "Sequence[Step]":
    """The steps of an edge: of versions first that those that are deletes pass none."""
    if not edge.versions_by:
        return () if not edge.has_steps else rows.steps
    from headrace.streams.engine import Where

    return (Where(f"NOT `{DELETED}`"), *rows.steps)


_STAMPED = ("_partition", "_offset", "_timestamp", "_event_time", "_watermark")
