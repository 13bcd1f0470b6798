"""Views of tables with keys that do not tell their rows apart, through the planner and the sink.

DuckDB says which row of each key is the first. Where batches are cut makes no difference, and nothing
that the log takes stops the application.
"""

import json
import re

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.property.examples import examples

from headrace import App, agg
from headrace.testing import run_app

DATABASE = duckdb.connect()
TABLES = {"t": ("id", "k", "v"), "s": ("id", "k", "v"), "u": ("uid", "w")}
VALUES = st.sampled_from([None, 1, 2, 3])
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(list(TABLES)),
        st.integers(1, 4),
        st.one_of(st.none(), st.tuples(VALUES, VALUES)),
        st.sampled_from([True, False, False]),  # whether a batch ends behind it
    ),
    max_size=16,
)


def grouped(table, key, name):
    return table.group_by(key).agg(**{name: agg.count()})


# The relation, the view's key, the SQL of its rows, and by what those of one key are ordered.
VIEWS = {
    "table": (lambda t, s, u: t, ["v"], "from t", "id"),
    "union": (lambda t, s, u: t.union(s), ["id"], "from t union all by name from s", "id, k, v"),
    "inner": (
        lambda t, s, u: t.join(u, on={"v": "w"}),
        ["v"],
        "from t join u on t.v = u.w",
        "id, uid, k, v, w",
    ),
    "right": (
        lambda t, s, u: t.join(u, on={"v": "w"}, how="right"),
        ["id"],
        "from t right join u on t.v = u.w",
        "id, uid, k, v, w",
    ),
    "full": (
        lambda t, s, u: t.join(u, on={"v": "w"}, how="full"),
        ["k"],
        "from t full join u on t.v = u.w",
        "id, uid, k, v, w",
    ),
    "full, of keys that may be null": (
        lambda t, s, u: grouped(t, "k", "n").join(grouped(s, "k", "m"), on="k", how="full"),
        [],
        "select coalesce(l.k, r.k) as k, n, m from (select k, count(*) as n from t group by k) l "
        "full join (select k, count(*) as m from s group by k) r on l.k = r.k",
        "k, n, m",
    ),
    "group": (
        lambda t, s, u: grouped(t, "k", "n"),
        ["n"],
        "select k, count(*) as n from t group by k",
        "k",
    ),
    "distinct": (lambda t, s, u: t.distinct("k", "v"), ["v"], "select distinct k, v from t", "k"),
    "top": (
        lambda t, s, u: t.top(2, by="v", per="k"),
        ["k"],
        "from t qualify row_number() over (partition by k order by v desc nulls last, id) <= 2",
        "id",
    ),
    # These keys do tell the rows apart, and are found without being named.
    "right by key": (
        lambda t, s, u: u.join(s, on={"w": "id"}, how="right"),
        [],
        "from u right join s on u.w = s.id",
        "id, uid",
    ),
    "left by key": (
        lambda t, s, u: u.join(s, on={"w": "id"}, how="left"),
        [],
        "from u left join s on w = id",
        "uid",
    ),
    "full by key": (
        lambda t, s, u: grouped(t, "id", "n").join(s, on="id", how="full"),
        [],
        "select coalesce(l.id, s.id) as id, n, k, v from (select id, count(*) as n from t group by id) l "
        "full join s on l.id = s.id",
        "id",
    ),
    "full by a column": (
        lambda t, s, u: grouped(t, "v", "n").join(u, on={"v": "w"}, how="full"),
        [],
        "from (select v, count(*) as n from t group by v) l full join u on v = w",
        "v, uid",
    ),
}
FOUND_KEYS = {
    "right by key": ["uid", "id"],
    "left by key": ["uid"],
    "full by key": ["id"],
    "full by a column": ["v", "uid"],
    "full, of keys that may be null": ["k"],
}


def application(relation, key):
    """One view of three tables."""
    app = App("keys")
    tables = [
        app.table(name, key=columns[0], schema=", ".join(f"{each} long" for each in columns), partitions=1)
        for name, columns in TABLES.items()
    ]

    @app.view(key=key)
    def view():
        return relation(*tables)

    return app


def judged(present, sql, key, order):
    """The first row of each key, of what is there, as text."""
    for name, columns in TABLES.items():
        schema = pa.schema([(each, pa.int64()) for each in columns])
        DATABASE.register(name, pa.Table.from_pylist(list(present[name].values()), schema))
    ordered = ", ".join(f"{name} asc nulls first" for name in order.split(", "))
    rows = f"from ({sql}) qualify row_number() over (partition by {', '.join(key)} order by {ordered}) = 1"
    return as_text(DATABASE.sql(rows).to_arrow_table().to_pylist())


def as_text(rows):
    return sorted(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("name", VIEWS)
@settings(max_examples=examples(8), deadline=None)
@given(changes=CHANGES)
@example(changes=[("s", 1, (None, None), True), ("t", 1, (None, None), True)])
def test_a_view_shows_the_first_row_of_each_key_wherever_batches_are_cut(name, changes):
    relation, key, sql, order = VIEWS[name]
    present = {each: {} for each in TABLES}
    with run_app(application(relation, key)) as run:
        for table, number, values, ends in changes:
            if not re.search(rf"(from|join) {table}\b", sql):
                continue  # nobody reads it
            own = TABLES[table]
            row = None if values is None else dict(zip(own, (number, *values), strict=False))
            present[table].pop(number, None)
            if row is not None:
                present[table][number] = row
            run.send(table, row, key=json.dumps({own[0]: number}))
            if ends:
                assert as_text(run.rows("view")) == judged(present, sql, key or FOUND_KEYS[name], order)
        assert as_text(run.rows("view")) == judged(present, sql, key or FOUND_KEYS[name], order)
