"""Graphs of operators by chance, and the same as SQL.

Every relation is a node of the graph and a query over the queries before it. Columns are numbers,
with names of their own, but for the bounds of windows.
"""

from dataclasses import dataclass, field

import pyarrow as pa

from headrace.streams.dataflow import Edge, Graph, Node, TopicSource, ViewOutput
from headrace.streams.operators import (
    Dedup,
    Distinct,
    Group,
    TableJoin,
    Top,
    Union,
    Upserts,
    WindowNode,
    WindowOperator,
    agg,
    tumbling,
)
from headrace.streams.spec import StreamSpec

TABLE = pa.schema([("id", pa.int64()), ("g", pa.int64()), ("v", pa.int64()), ("_deleted", pa.bool_())])
STREAM = pa.schema([("g", pa.int64()), ("v", pa.int64())])
SIZE_US = 10
MOST_COLUMNS = 9
HOW = ("inner", "left", "right", "full", "semi", "anti")


@dataclass
class Made:
    """One relation: its producer, its columns, its SQL, and whether it only has an answer at the end."""

    producer: int
    schema: pa.Schema
    sql: str
    is_stream: bool = False
    at_the_end: bool = False

    @property
    def numbers(self):
        return [each.name for each in self.schema if pa.types.is_int64(each.type)]


@dataclass
class Maker:
    """Draws nodes by chance; `made` has all relations, those of the topics first."""

    chance: object
    made: list = field(default_factory=list)
    nodes: list = field(default_factory=list)
    names: int = 0

    def graph(self, operators):
        topics = ("t0", "t1", "s0", "s1")
        schemas = (TABLE, TABLE, STREAM, STREAM)
        sources = tuple(
            TopicSource(spec=StreamSpec(topic=topic), schema=schema)
            for topic, schema in zip(topics, schemas, strict=True)
        )
        for number, topic in enumerate(topics):
            sql = f"select * exclude (_t, _o) from {topic}" if topic[0] == "s" else f"select * from {topic}"
            self.made.append(Made(number, schemas[number], sql, is_stream=topic[0] == "s"))
        for number in (0, 1):
            sql = f"select * from t{number}"
            self.made[number] = self.add(f"table {number}", Upserts(("id",)), [self.made[number]], sql)
        while len(self.nodes) < operators + 2:
            self.made.append(self.drawn())
        last = self.made[-1]
        view = ViewOutput(name="view", edge=Edge(producer=last.producer, schema=last.schema))
        return Graph(sources=sources, nodes=tuple(self.nodes), views=(view,), buckets=3), last

    def add(self, name, operator, inputs, sql, *, is_stream=False, at_the_end=False):
        edges = tuple(Edge(producer=each.producer, schema=each.schema) for each in inputs)
        node = Node(name=name, operator=operator, edges=edges)
        self.nodes.append(node)
        late = at_the_end or any(each.at_the_end for each in inputs)
        return Made(4 + len(self.nodes) - 1, node.schema, sql, is_stream, late)

    def drawn(self):
        makers = [
            self.join,
            self.join,
            self.group,
            self.distinct,
            self.top,
            self.union,
            self.window,
            self.dedup,
        ]
        while True:
            found = self.chance.choice(makers)()
            if found is not None:
                return found

    def any(self, *, streams=None):
        """A relation; newer ones more often, so that graphs grow deep."""
        known = [each for each in self.made if streams is None or each.is_stream == streams]
        return self.chance.choice(known + known[-2:] * 3)

    def join(self):
        left, right = self.any(streams=False), self.any(streams=False)
        how = self.chance.choice(HOW)
        if len(left.schema) + len(right.schema) > MOST_COLUMNS and how not in ("semi", "anti"):
            return None
        one, other = self.chance.choice(left.numbers), self.chance.choice(right.numbers)
        names = tuple((each.name, self.fresh()) for each in right.schema)
        operator = TableJoin(left_on=(one,), right_on=(other,), how=how, right_names=names)
        on = f"l.{one} = r.{other}"
        if how in ("semi", "anti"):
            sql = f"select l.* from ({left.sql}) l {how} join ({right.sql}) r on {on}"
        else:
            own = ", ".join(f"r.{old} as {new}" for old, new in names)
            sql = f"select l.*, {own} from ({left.sql}) l {how} join ({right.sql}) r on {on}"
        return self.add(f"{how} join", operator, [left, right], sql)

    def group(self):
        rows = self.any()
        key, value = self.chance.choice(rows.numbers), self.chance.choice(rows.numbers)
        names = [self.fresh() for _ in range(4)]
        kinds = (agg.count(), agg.sum(value), agg.max(value), agg.count_distinct(value))
        number = self.chance.randrange(1, 5)
        named = tuple(zip(names, kinds, strict=True))[:number]
        texts = ("count(*)", f"sum({value})::bigint", f"max({value})", f"count(distinct {value})")
        own = ", ".join(f"{text} as {name}" for text, name in list(zip(texts, names, strict=True))[:number])
        operator = Group((key,), named, rows.is_stream, None if rows.is_stream else ())
        return self.add("group", operator, [rows], f"select {key}, {own} from ({rows.sql}) group by {key}")

    def distinct(self):
        rows = self.any()
        names = self.chance.sample(rows.numbers, self.chance.randrange(1, len(rows.numbers) + 1))
        sql = f"select distinct {', '.join(names)} from ({rows.sql})"
        return self.add("distinct", Distinct(tuple(names)), [rows], sql)

    def top(self):
        rows, n = self.any(), self.chance.randrange(1, 4)
        by, per = self.chance.choice(rows.numbers), self.chance.choice(rows.numbers)
        descending = self.chance.random() < 0.5
        operator = Top(n, (per,), ((by, descending),), append_only=rows.is_stream)
        ties = ", ".join(f"{name} asc nulls first" for name in rows.schema.names)
        order = f"{by} {'desc' if descending else 'asc'} nulls last, {ties}"
        place = f"row_number() over (partition by {per} order by {order})"
        return self.add("top", operator, [rows], f"select * from ({rows.sql}) qualify {place} <= {n}")

    def union(self):
        one = self.any(streams=False)
        names = set(one.schema.names)
        alike = [each for each in self.made if not each.is_stream and set(each.schema.names) == names]
        other = self.chance.choice(alike)
        sql = f"select * from ({one.sql}) union all by name select * from ({other.sql})"
        return self.add("union", Union(2), [one, other], sql)

    def window(self):
        topic, rows = self.stream()
        name = self.fresh()
        windows = WindowOperator(
            window=tumbling(f"{SIZE_US} microseconds"), keys=("g",), aggregates=((name, agg.count()),)
        )
        start = f"(_t // {SIZE_US}) * {SIZE_US}"
        bounds = f"make_timestamp({start}) as window_start, make_timestamp({start} + {SIZE_US}) as window_end"
        sql = f"select g, {bounds}, count(*) as {name} from {topic} group by g, {start}"
        return self.add("windows", WindowNode(windows), [rows], sql, at_the_end=True)

    def dedup(self):
        topic, rows = self.stream()
        within = self.chance.choice((0, 3, 12))
        before = "lag(_t) over (partition by g order by _t, _o)"
        sql = f"select * exclude (_t, _o) from {topic} qualify {before} is null or _t - {before} > {within}"
        return self.add("dedup", Dedup(("g",), within), [rows], sql, is_stream=True, at_the_end=True)

    def stream(self):
        number = self.chance.choice((2, 3))
        return f"s{number - 2}", self.made[number]

    def fresh(self):
        self.names += 1
        return f"c{self.names}"
