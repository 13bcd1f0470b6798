"""Applications drawn by chance through the public API, each with the SQL of its view.

Two tables and two streams, each of which drops what comes late or corrects it for some seconds, and any of:
joins of tables; of a stream with a table as of its time, also with one that is the last row of each key of
a stream, or behind steps; of two streams; groups, distinct, top, dedup, explode, unions, windows; and,
where there is a Spark, where, select and with_columns between any two of them.

In SQL, a stream's rows have their stamps: their time `_t`, the watermark `_w` that they met in their
partition, by which late ones are left out, and partition and offset, `_p` and `_o`. All columns that are
used are integers, and have names of their own.
"""

from dataclasses import dataclass, field, replace

from tests.property.app.random_inputs import SECOND, STREAMS, TABLES

from headrace import App, agg, hopping, tumbling
from headrace.app import Stream

HOW = ("inner", "left", "right", "full", "semi", "anti")
MOST_COLUMNS = 8
STAMPS = "_t, _w, _p, _o"
LATE = (("drop", 0), ("drop", 0), ("correct", 3), ("correct", 10))


@dataclass(frozen=True)
class Made:
    """Rows: what the API has of them, their columns, and their SQL.

    `others` are columns that are not used, but there. `settled` says that the answer is only known when all
    event time has passed. Of a stream's rows, `correct` is for how long they take what comes late, `final`
    that none is ever taken back, `held` by how much their watermark is behind their stamps, and `one_each`
    that a record has one row at most. `log` is the SQL of a table's versions, by `key`.
    """

    rows: object
    columns: tuple
    sql: str
    others: tuple = ()
    is_stream: bool = False
    settled: bool = False
    correct: int = 0
    final: bool = True
    held: int = 0
    one_each: bool = False
    key: str = ""
    log: str = ""

    def as_final(self):
        """What operators by time read of it."""
        if self.final:
            return self
        sql = f"select * replace (_w - {self.held} as _w) from ({self.sql})"
        return replace(self, sql=sql, correct=max(self.correct - self.held, 0), final=True, held=0)

    def in_time(self, within=0):
        return f"select * from ({self.sql}) where _w is null or _w - {within} <= _t"

    def sliding(self, size):
        """How many rows with its first column each row had within a time before it."""
        final, key = self.as_final(), self.columns[0]
        counted = f"o._t <= r._t and r._t < o._t + {size} and (o._w is null or o._w <= r._t)"
        return (
            f"select r.{key}, r._p as _partition, r._o as _offset, count(*) as n from ({final.in_time()}) r "
            f"join ({final.sql}) o on r.{key} is not distinct from o.{key} and {counted} group by all"
        )


@dataclass
class Maker:
    """Draws relations by chance; `made` has all of them, those of the topics first."""

    chance: object
    has_spark: bool = False
    app: App = field(default_factory=lambda: App("random"))
    made: list = field(default_factory=list)
    names: int = 0

    def draw(self, operators):
        """A relation of so many operators."""
        for name in TABLES:
            self.made.append(self.table(name))
        for name in STREAMS:
            self.made.append(self.stream(name))
        makers = self.makers + (self.steps * 2 if self.has_spark else ())
        while len(self.made) < len(TABLES) + len(STREAMS) + operators:
            found = self.chance.choice(makers)(self)
            if found is not None:
                self.made.append(found)
        return self.made[-1]

    def table(self, name):
        columns = tuple(f"{name}_{each}" for each in ("id", "g", "v"))
        schema = ", ".join([*(f"{each} long" for each in columns), "xs array<long>"])
        rows = self.app.table(name, key=columns[0], schema=schema, **self.common())
        listed = ", ".join(columns)
        log = f"select {listed}, xs, {STAMPS}, _deleted from {name}_log"
        return Made(
            rows, columns, f"select {listed}, xs from {name}", ("xs",),
            correct=rows.correct_for_us // 1000, key=columns[0], log=log,
        )  # fmt: skip

    def stream(self, name):
        columns = tuple(f"{name}_{each}" for each in ("g", "v"))
        schema = ", ".join([*(f"{each} long" for each in columns), "xs array<long>", "at long"])
        rows = self.app.stream(name, schema=schema, event_time="at", lateness="2 seconds", **self.common())
        sql = f"select {', '.join(columns)}, xs, {STAMPS} from {name}_log"
        return Made(
            rows, columns, sql, ("xs", "at"),
            is_stream=True, settled=True, correct=rows.correct_for_us // 1000, one_each=True,
        )  # fmt: skip

    def common(self):
        late, seconds = self.chance.choice(LATE)
        more = {"correct_for": f"{seconds} seconds"} if late == "correct" else {}
        return {"partitions": 2, "idle_after": "1 hour", "late": late, **more}

    def any(self, *, streams=None):
        """A relation; newer ones more often, so that applications grow deep."""
        known = [each for each in self.made if streams is None or each.is_stream == streams]
        return self.chance.choice(known + known[-2:] * 3)

    def fresh(self):
        self.names += 1
        return f"c{self.names}"

    # --- sets of rows -------------------------------------------------------------------------

    def tables_joined(self):
        left, right = self.any(streams=False), self.any(streams=False)
        how, settled = self.chance.choice(HOW), left.settled or right.settled
        if len(left.columns) + len(right.columns) > MOST_COLUMNS and how not in ("semi", "anti"):
            return None
        one, other = self.chance.choice(left.columns), self.chance.choice(right.columns)
        prefix = f"{self.fresh()}_"
        if one == other:
            return None
        rows = left.rows.join(right.rows, on={one: other}, how=how, prefix=prefix)
        joined = f"from ({left.sql}) l {how} join ({right.sql}) r on l.{one} = r.{other}"
        if how in ("semi", "anti"):
            return Made(rows, left.columns, f"select l.* {joined}", left.others, settled=settled)
        new = tuple(prefix + each for each in right.columns)
        given = ", ".join(f"r.{old} as {name}" for old, name in zip(right.columns, new, strict=True))
        sql = f"select {', '.join(f'l.{each}' for each in left.columns)}, {given} {joined}"
        return Made(rows, (*left.columns, *new), sql, ("joined", prefix), settled=settled)

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
        if not set(key) <= set(made.columns) or (not key and made.others):
            return (
                None  # without a key, columns that are not used would order equal rows, or arrays refuse to
            )
        order = ", ".join(f"{name} asc nulls first" for name in dict.fromkeys([*key, *made.columns]))
        place = f"row_number() over (partition by {per} order by {by} desc nulls last, {order})"
        sql = f"select * from ({made.sql}) qualify {place} <= {n}"
        return Made(made.rows.top(n, by=by, per=per), made.columns, sql, made.others, settled=made.settled)

    def united(self):
        one = self.any()
        alike = [each for each in self.made if _columns(each) == _columns(one)]
        other = self.chance.choice(alike)
        rows, sides = one.rows.union(other.rows), (one, other)
        if not one.is_stream:
            sql = f"select * from ({one.sql}) union all by name select * from ({other.sql})"
            return Made(rows, one.columns, sql, one.others, settled=one.settled or other.settled)
        parts = [f"select * replace (_p * 2 + {i} as _p) from ({s.sql})" for i, s in enumerate(sides)]
        return replace(
            one, rows=rows, sql=" union all by name ".join(parts), one_each=False,
            correct=max(each.correct for each in sides), final=all(each.final for each in sides),
            held=min(each.held for each in sides),
        )  # fmt: skip

    def exploded(self):
        known = [each for each in self.made if "xs" in each.others]
        made, name, outer = self.chance.choice(known), self.fresh(), self.chance.random() < 0.5
        elements = "case when len(xs) > 0 then xs else [null] end" if outer else "xs"
        kept = ", ".join([*made.columns, *([STAMPS] if made.is_stream else [])])
        sql = f"select {kept}, unnest({elements}) as {name} from ({made.sql})"
        rows = made.rows.explode("xs", name=name, outer=outer)
        others = tuple(each for each in made.others if each != "xs")
        columns = (*made.columns, name)
        return replace(
            made, rows=rows, columns=columns, sql=sql, others=others, one_each=False, key="", log=""
        )

    # --- streams ------------------------------------------------------------------------------

    def looked_up(self):
        """A stream with a table, as of the stream's time."""
        stream = self.any(streams=True).as_final()
        table = self.chance.choice([each for each in self.made if each.log])
        if len(stream.columns) + len(table.columns) > MOST_COLUMNS + 1:
            return None
        on, how = self.chance.choice(stream.columns), self.chance.choice(("inner", "left"))
        prefix = f"{self.fresh()}_"
        if on == table.key:
            return None
        rows = stream.rows.join(table.rows, on={on: table.key}, how=how, prefix=prefix)
        given = ", ".join(f"f.{each} as {prefix}{each}" for each in table.columns)
        sees = f"r._t <= l._t and (r._w is null or r._w - {table.correct} <= l._t)"
        sql = f"""
            with l as (select *, row_number() over () as _id from ({stream.sql})), found as (
              select l._id, r.* from l join ({table.log}) r on l.{on} = r.{table.key} and {sees}
              qualify row_number() over (partition by l._id order by r._t desc, r._p desc, r._o desc) = 1
            ) select l.* exclude (_id), {given} from l {how} join found f on l._id = f._id and not f._deleted
        """
        columns = (*stream.columns, *(prefix + each for each in table.columns))
        return replace(
            stream, rows=rows, columns=columns, sql=sql, others=(*stream.others, prefix),
            correct=max(stream.correct, table.correct), final=not table.correct,
            held=stream.held + table.correct, key="", log="",
        )  # fmt: skip

    def streams_joined(self):
        one, other = self.any(streams=True).as_final(), self.any(streams=True).as_final()
        if len(one.columns) + len(other.columns) > MOST_COLUMNS:
            return None
        how, span = self.chance.choice(HOW[:4]), self.chance.choice((0, 3, 10))
        left, right = self.chance.choice(one.columns), self.chance.choice(other.columns)
        late, prefix = max(one.correct, other.correct), f"{self.fresh()}_"
        if left == right:
            return None
        rows = one.rows.join(other.rows, on={left: right}, how=how, within=f"{span} seconds", prefix=prefix)
        given = ", ".join(f"r.{each} as {prefix}{each}" for each in other.columns)
        near = f"l.{left} = r.{right} and abs(l._t - r._t) <= {span * SECOND}"
        stamps = ", ".join(
            f"case when l._t is null then r.{each} else l.{each} end as {each}" for each in STAMPS.split(", ")
        )
        sql = (
            f"select {', '.join(f'l.{each}' for each in one.columns)}, {given}, {stamps} "
            f"from ({one.in_time(late)}) l {how} join ({other.in_time(late)}) r on {near}"
        )
        columns = (*one.columns, *(prefix + each for each in other.columns))
        joined = ["joined", *(each for each in (*one.others, *other.others) if each == "joined")]
        return Made(
            rows, columns, sql, (*joined, prefix), is_stream=True, settled=True, correct=late,
            final=not late or how == "inner", held=min(one.held, other.held) + late,
        )  # fmt: skip

    def windowed(self):
        made = self.any(streams=True)
        stream = made.as_final()
        key, name, size = self.chance.choice(stream.columns), self.fresh(), 10 * SECOND
        step = self.chance.choice((size, size // 2))
        correct = made.correct if isinstance(made.rows, Stream) else 0
        window = tumbling("10 seconds") if step == size else hopping("10 seconds", every="5 seconds")
        windows = made.rows.window(window, by=key).agg(**{name: agg.count()})
        rows = self.app.as_table(lambda: windows).group_by(key, name).agg(**{f"{name}n": agg.count()})
        ends = f"unnest(generate_series((_t // {step} + 1) * {step}, _t // {step} * {step} + {size}, {step}))"
        counted = (
            f"select * from (select *, {ends} as _end from ({stream.sql})) "
            f"where _w is null or _end + {correct} > _w"
        )
        inner = f"select {key}, count(*) as {name} from ({counted}) group by {key}, _end"
        sql = f"select {key}, {name}, count(*) as {name}n from ({inner}) group by {key}, {name}"
        return Made(rows, (key, name, f"{name}n"), sql, settled=True)

    def deduplicated(self):
        stream = self.any(streams=True).as_final()
        key, within = self.chance.choice(stream.columns), self.chance.choice((0, 2, 8))
        if stream.others.count("joined") > 1:  # of rows of one record, columns that are not used count first
            return None
        ties = ", ".join(f"{each} asc nulls first" for each in stream.columns)
        before = f"lag(_t) over (partition by {key} order by _t, _p, _o, {ties})"
        sql = (
            f"select * from ({stream.in_time(stream.correct)}) "
            f"qualify {before} is null or _t - {before} > {within * SECOND}"
        )
        rows = stream.rows.dedup(key, within=f"{within} seconds")
        return replace(stream, rows=rows, sql=sql, held=0)

    def last(self):
        """The last row of each key of a stream as a table, and its versions."""
        known = [each for each in self.made if each.is_stream and each.one_each]
        made, name = self.chance.choice(known), self.fresh()
        key = self.chance.choice(made.columns)
        self.app.view(name=name, key=key)(lambda: made.rows)
        first = f"row_number() over (partition by {key} order by _t desc, _p desc, _o desc) = 1"
        sql = f"select * exclude ({STAMPS}) from ({made.sql}) qualify {first}"
        final = made.as_final()
        log = f"select *, false as _deleted from ({final.sql})"
        return Made(
            self.app.as_table(name), made.columns, sql, made.others,
            settled=True, correct=final.correct, key=key, log=log,
        )  # fmt: skip

    # --- steps --------------------------------------------------------------------------------

    def filtered(self):
        made = self.any()
        column, least = self.chance.choice(made.columns), self.chance.randrange(0, 3)
        condition = f"{column} > {least} or {column} is null"
        log = made.log and f"select * replace (_deleted or not ({condition}) as _deleted) from ({made.log})"
        rows, sql = made.rows.where(condition), f"select * from ({made.sql}) where {condition}"
        return replace(made, rows=rows, sql=sql, log=log)

    def projected(self):
        made = self.any()
        names = self.chance.sample(made.columns, self.chance.randrange(1, len(made.columns) + 1))
        if made.key and made.key not in names:
            names.append(made.key)
        new, old = self.fresh(), self.chance.choice(names)
        columns = {name: new if name == old else name for name in names}
        listed = ", ".join(f"{name} as {given}" for name, given in columns.items())
        rows = made.rows.select(*(f"{name} as {given}" for name, given in columns.items()))
        kept = f"{listed}, {STAMPS}" if made.is_stream else listed
        return replace(
            made, rows=rows, columns=tuple(columns.values()), others=(), key=columns.get(made.key, ""),
            sql=f"select {kept} from ({made.sql})",
            log=made.log and f"select {listed}, {STAMPS}, _deleted from ({made.log})",
        )  # fmt: skip

    def computed(self):
        made, new = self.any(), self.fresh()
        if len(made.columns) >= MOST_COLUMNS:
            return None
        one, other = self.chance.choice(made.columns), self.chance.choice(made.columns)
        text = f"coalesce({one}, 0) + {other}"
        rows = made.rows.with_columns(**{new: text})
        sql, log = (each and f"select *, {text} as {new} from ({each})" for each in (made.sql, made.log))
        return replace(made, rows=rows, columns=(*made.columns, new), sql=sql, log=log)

    makers = (
        tables_joined,
        tables_joined,
        grouped,
        grouped,
        distinct,
        top,
        united,
        looked_up,
        looked_up,
        streams_joined,
        exploded,
        windowed,
        deduplicated,
        last,
    )
    steps = (filtered, projected, computed)


def _columns(made):
    return made.is_stream, {*made.columns, *made.others}
