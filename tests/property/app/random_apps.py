"""Applications drawn by chance through the public API, each with the SQL of its view.

Two tables and two streams, each of two partitions, and any of: joins of tables, of a stream with a table as
of its time, of two streams; groups, distinct, top, dedup, explode, unions, windows. In SQL, a stream's
rows have their time, `_t`, and the watermark that they met in their partition, `_w`, by which late ones
are left out. All columns are integers, and have names of their own.
"""

from dataclasses import dataclass, field

from headrace import App, agg, tumbling

HOW = ("inner", "left", "right", "full", "semi", "anti")
MOST_COLUMNS = 8
IN_TIME = "(_w is null or _w <= _t)"
SECOND = 1_000  # times are in milliseconds


@dataclass
class Made:
    """Rows: what the API has of them, their columns, and their SQL.

    `settled` says that the answer is only known when all event time has passed.
    """

    rows: object
    columns: tuple
    sql: str
    is_stream: bool = False
    settled: bool = False


@dataclass
class Maker:
    """Draws relations by chance; `made` has all of them, those of the topics first."""

    chance: object
    app: App = field(default_factory=lambda: App("random"))
    made: list = field(default_factory=list)
    names: int = 0

    def draw(self, operators):
        """A relation of so many operators."""
        common = {"partitions": 2, "idle_after": "1 hour"}
        for name in ("t0", "t1"):
            columns = (f"{name}_id", f"{name}_g", f"{name}_v")
            schema = ", ".join(f"{each} long" for each in columns)
            rows = self.app.table(name, key=columns[0], schema=schema, **common)
            self.made.append(Made(rows, columns, f"select {', '.join(columns)} from {name}"))
        for name in ("s0", "s1"):
            columns = (f"{name}_g", f"{name}_v")
            schema = f"{name}_g long, {name}_v long, xs array<long>, at long"
            rows = self.app.stream(name, schema=schema, event_time="at", lateness="2 seconds", **common)
            own = f"select {', '.join(columns)}, _t, _w from {name}"
            self.made.append(Made(rows, columns, own, is_stream=True, settled=True))
        while len(self.made) < 4 + operators:
            found = self.chance.choice(self.makers)(self)
            if found is not None:
                self.made.append(found)
        return self.made[-1]

    def any(self, *, streams=None):
        """A relation; newer ones more often, so that applications grow deep."""
        known = [each for each in self.made if streams is None or each.is_stream == streams]
        return self.chance.choice(known + known[-2:] * 3)

    def fresh(self):
        self.names += 1
        return f"c{self.names}"

    def tables_joined(self):
        left, right = self.any(streams=False), self.any(streams=False)
        how = self.chance.choice(HOW)
        if len(left.columns) + len(right.columns) > MOST_COLUMNS and how not in ("semi", "anti"):
            return None
        one, other, prefix = (
            self.chance.choice(left.columns),
            self.chance.choice(right.columns),
            f"{self.fresh()}_",
        )
        if one == other:
            return None
        rows = left.rows.join(right.rows, on={one: other}, how=how, prefix=prefix)
        on, settled = f"l.{one} = r.{other}", left.settled or right.settled
        if how in ("semi", "anti"):
            return Made(
                rows,
                left.columns,
                f"select l.* from ({left.sql}) l {how} join ({right.sql}) r on {on}",
                settled=settled,
            )
        new = tuple(prefix + each for each in right.columns)
        given = ", ".join(f"r.{old} as {name}" for old, name in zip(right.columns, new, strict=True))
        sql = f"select l.*, {given} from ({left.sql}) l {how} join ({right.sql}) r on {on}"
        return Made(rows, (*left.columns, *new), sql, settled=settled)

    def grouped(self):
        made = self.any()
        keys = tuple(
            self.chance.sample(made.columns, self.chance.randrange(0, min(2, len(made.columns)) + 1))
        )
        value, names = self.chance.choice(made.columns), [self.fresh() for _ in range(4)]
        kinds = [
            (agg.count(), "count(*)"),
            (agg.sum(value), f"sum({value})::bigint"),
            (agg.max(value), f"max({value})"),
            (agg.count_distinct(value), f"count(distinct {value})"),
        ]
        taken = self.chance.sample(list(zip(names, kinds, strict=True)), self.chance.randrange(1, 4))
        rows = made.rows.group_by(*keys).agg(**{name: kind for name, (kind, _) in taken})
        given = ", ".join([*keys, *(f"{text} as {name}" for name, (_, text) in taken)])
        grouping = f"group by {', '.join(keys)}" if keys else "having count(*) > 0"
        sql = f"select {given} from ({made.sql}) {grouping}"
        return Made(rows, (*keys, *(name for name, _ in taken)), sql, settled=made.settled)

    def distinct(self):
        made = self.any()
        names = self.chance.sample(made.columns, self.chance.randrange(1, len(made.columns) + 1))
        sql = f"select distinct {', '.join(names)} from ({made.sql})"
        return Made(made.rows.distinct(*names), tuple(names), sql, settled=made.settled)

    def top(self):
        made, n = self.any(streams=False), self.chance.randrange(1, 4)
        by, per = self.chance.choice(made.columns), self.chance.choice(made.columns)
        key = made.rows.key
        if not set(key) <= set(made.columns):
            return None
        order = ", ".join(f"{name} asc nulls first" for name in dict.fromkeys([*key, *made.columns]))
        place = f"row_number() over (partition by {per} order by {by} desc nulls last, {order})"
        sql = f"select * from ({made.sql}) qualify {place} <= {n}"
        return Made(made.rows.top(n, by=by, per=per), made.columns, sql, settled=made.settled)

    def united(self):
        one = self.any(streams=False)
        names = set(one.columns)
        other = self.chance.choice([e for e in self.made if not e.is_stream and set(e.columns) == names])
        sql = f"select * from ({one.sql}) union all by name select * from ({other.sql})"
        return Made(one.rows.union(other.rows), one.columns, sql, settled=one.settled or other.settled)

    def looked_up(self):
        """A stream with a table, as of the stream's time."""
        stream, table = self.chance.choice(self.made[2:4]), self.chance.randrange(2)
        name, how = f"t{table}", self.chance.choice(("inner", "left"))
        on, prefix = self.chance.choice(stream.columns), f"{self.fresh()}_"
        rows = stream.rows.join(self.made[table].rows, on={on: f"{name}_id"}, how=how, prefix=prefix)
        own = [f"{name}_id", f"{name}_g", f"{name}_v"]
        given = ", ".join(f"r.{each} as {prefix}{each}" for each in own)
        kept = ", ".join(f"l.{each}" for each in stream.columns)
        sql = (
            f"select {kept}, {given}, l._t, l._w from ({stream.sql}) l "
            f"{how} join {name}_versions r on l.{on} = r.{name}_id and r._from <= l._t and l._t < r._to"
        )
        columns = (*stream.columns, *(prefix + each for each in own))
        return Made(rows, columns, sql, is_stream=True, settled=True)

    def streams_joined(self):
        one, other = self.made[2], self.made[3]
        if self.chance.random() < 0.5:
            one, other = other, one
        how, span = self.chance.choice(HOW[:4]), self.chance.choice((0, 3, 10))
        left, right = self.chance.choice(one.columns), self.chance.choice(other.columns)
        prefix = f"{self.fresh()}_"
        rows = one.rows.join(other.rows, on={left: right}, how=how, within=f"{span} seconds", prefix=prefix)
        given = ", ".join(f"r.{each} as {prefix}{each}" for each in other.columns)
        near = f"l.{left} = r.{right} and abs(l._t - r._t) <= {span * SECOND}"
        sql = (
            f"select {', '.join(f'l.{each}' for each in one.columns)}, {given}, coalesce(l._t, r._t) as _t, "
            f"case when l._t is null then r._w else l._w end as _w "
            f"from ({one.sql} where {IN_TIME}) l {how} join ({other.sql} where {IN_TIME}) r on {near}"
        )
        columns = (*one.columns, *(prefix + each for each in other.columns))
        return Made(rows, columns, sql, is_stream=True, settled=True)

    def exploded(self):
        number = self.chance.randrange(2)
        stream, name = self.made[2 + number], self.fresh()
        outer = self.chance.random() < 0.5
        rows = stream.rows.explode("xs", name=name, outer=outer)
        elements = "case when len(xs) > 0 then xs else [null] end" if outer else "xs"
        sql = f"select {', '.join(stream.columns)}, unnest({elements}) as {name}, _t, _w from s{number}"
        return Made(rows, (*stream.columns, name), sql, is_stream=True, settled=True)

    def windowed(self):
        stream = self.any(streams=True)
        key, name = self.chance.choice(stream.columns), self.fresh()
        windows = stream.rows.window(tumbling("10 seconds"), by=key).agg(**{name: agg.count()})
        rows = self.app.as_table(lambda: windows)
        place = f"_t // {10 * SECOND}"
        in_time = f"_w is null or _w < ({place} + 1) * {10 * SECOND}"
        sql = f"select {key}, count(*) as {name} from ({stream.sql}) where {in_time} group by {key}, {place}"
        made = Made(rows, (key, name), sql, settled=True)
        return Made(
            made.rows.group_by(key, name).agg(**{f"{name}n": agg.count()}),
            (key, name, f"{name}n"),
            f"select {key}, {name}, count(*) as {name}n from ({sql}) group by {key}, {name}",
            settled=True,
        )

    def deduplicated(self):
        number = self.chance.randrange(2)
        stream = self.made[2 + number]
        key, within = self.chance.choice(stream.columns), self.chance.choice((0, 2, 8))
        before = f"lag(_t) over (partition by {key} order by _t, _p, _o)"
        sql = (
            f"select {', '.join(stream.columns)}, _t, _w from s{number} where {IN_TIME} "
            f"qualify {before} is null or _t - {before} > {within * SECOND}"
        )
        rows = stream.rows.dedup(key, within=f"{within} seconds")
        return Made(rows, stream.columns, sql, is_stream=True, settled=True)

    makers = (
        tables_joined,
        tables_joined,
        grouped,
        grouped,
        distinct,
        top,
        united,
        looked_up,
        streams_joined,
        exploded,
        windowed,
        deduplicated,
    )
