"""What the front door makes of a group of everything, of names that clash and of numbers of other widths.

DuckDB is the judge: of every state of the tables, and, of joins with streams, at the end.
"""

import json

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.examples import examples

from headrace import App, agg
from headrace.errors import ConfigError
from headrace.testing import run_app

DATABASE = duckdb.connect()
WIDE = {"id": "long", "v": "long"}
NARROW = {"id": "int", "v": "short"}
TYPES = {"long": pa.int64(), "int": pa.int32(), "short": pa.int16()}
VALUES = st.sampled_from([None, 1, 2, 3])
CHANGES = st.lists(
    st.tuples(
        st.sampled_from("tu"), st.integers(1, 4), st.one_of(st.none(), st.tuples(VALUES)), st.booleans()
    ),
    max_size=14,
)
VIEWS = {
    "everything": (
        lambda t, u: t.group_by().agg(n=agg.count(), total=agg.sum("v")),
        [],
        "select count(*) as n, sum(v)::bigint as total from t having count(*) > 0",
    ),
    "everything of a join": (
        lambda t, u: t.join(u, on="id", prefix="u_").group_by().agg(most=agg.max("u_v"), ids=agg.count("id")),
        [],
        "select max(u.v) as most, count(t.id) as ids from t join u on t.id = u.id having count(*) > 0",
    ),
    "shared key": (
        lambda t, u: t.join(u, on="id", how="full", prefix="u_"),
        [],
        "select coalesce(t.id, u.id) as id, t.v as v, u.v as u_v from t full join u on t.id = u.id",
    ),
    "foreign key": (
        lambda t, u: u.join(t, on={"v": "id"}, how="left", prefix="t_"),
        [],
        "select u.id, u.v, t.id as t_id, t.v as t_v from u left join t on u.v = t.id",
    ),
    "itself": (
        lambda t, u: t.join(t, on={"v": "id"}, how="right", prefix="its_"),
        [],
        "select l.id, l.v, r.id as its_id, r.v as its_v from t l right join t r on l.v = r.id",
    ),
    "semi": (lambda t, u: t.join(u, on="id", how="semi"), [], "select * from t semi join u on t.id = u.id"),
    "union": (
        lambda t, u: u.union(t).distinct("id", "v"),
        [],
        "select distinct * from (from t union all by name from u)",
    ),
}


def tables_of(app):
    """One table of wide and one of narrow numbers."""
    for name, columns in (("t", WIDE), ("u", NARROW)):
        schema = ", ".join(f"{each} {kind}" for each, kind in columns.items())
        yield app.table(name, key="id", schema=schema, partitions=1)


def judged(present, sql):
    for name, columns in (("t", WIDE), ("u", NARROW)):
        schema = pa.schema([(each, TYPES[kind]) for each, kind in columns.items()])
        DATABASE.register(name, pa.Table.from_pylist(list(present[name].values()), schema))
    return as_text(DATABASE.sql(sql).to_arrow_table().to_pylist())


def as_text(rows):
    return sorted(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("name", VIEWS)
@settings(max_examples=examples(8), deadline=None)
@given(changes=CHANGES)
def test_every_state_is_what_sql_makes_of_the_tables(name, changes):
    relation, key, sql = VIEWS[name]
    app = App("door")
    rows = relation(*tables_of(app))
    app.view(name="view", key=key)(lambda: rows)
    app.view(name="other")(lambda: app.tables["u"].join(app.tables["t"], on="id", how="anti"))
    present = {"t": {}, "u": {}}
    with run_app(app) as run:
        for table, number, values, ends in changes:
            present[table].pop(number, None)
            row = None if values is None else {"id": number, "v": values[0]}
            if row is not None:
                present[table][number] = row
            run.send(table, row, key=json.dumps({"id": number}))
            if ends:
                assert as_text(run.rows("view")) == judged(present, sql)
        assert as_text(run.rows("view")) == judged(present, sql)


def test_streams_are_joined_with_a_prefix_and_by_numbers_of_any_width():
    app = App("door")
    prices, _ = tables_of(app)
    sales = app.stream("sales", schema="id int, v long, at long", event_time="at", partitions=1)
    refunds = app.stream("refunds", schema="id long, v long, at long", event_time="at", partitions=1)
    app.view(name="priced")(lambda: sales.join(prices, on="id", how="left", prefix="price_"))
    app.view(name="pairs", key=["id", "refund_at"])(
        lambda: sales.join(refunds, on="id", how="left", within="1 minute", prefix="refund_")
    )
    at = 1_767_225_600_000
    with run_app(app) as run:
        run.send("t", {"id": 1, "v": 7}, key=b'{"id": 1}', at="2025-12-31T00:00:00Z")
        run.send("sales", {"id": 1, "v": 2, "at": at}, {"id": 3, "v": 4, "at": at + 1})
        run.send("refunds", {"id": 1, "v": 5, "at": at + 10})
        run.stop_input()
        found = [(row["id"], row["v"], row["price_v"]) for row in run.rows("priced")]
        assert sorted(found) == [(1, 2, 7), (3, 4, None)]
        pairs = [(row["id"], row["v"], row["refund_v"], row["refund_at"]) for row in run.rows("pairs")]
        assert sorted(pairs) == [(1, 2, 5, at + 10), (3, 4, None, None)]


def test_text_and_numbers_are_not_joined():
    app = App("door")
    table, _ = tables_of(app)
    names = app.table("names", key="name", schema="name string")
    app.view(name="view")(lambda: table.join(names, on={"id": "name"}))
    with pytest.raises(ConfigError, match=r"test_front_door.py, line \d+: view 'view': .*cast one of them"):
        run_app(app)
