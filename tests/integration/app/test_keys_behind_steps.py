"""Which keys the planner is certain of behind steps, by Spark's analysis; nothing runs."""

import pytest

from headrace import App
from headrace.app.plan import plan_app

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def planned(spark):
    app = App("keys")
    customers = app.table("customers", key="id", schema="id long, name string, region string")
    orders = app.table("orders", key="order_id", schema="order_id long, customer long")
    named = customers.select("id as customer", "upper(name) as name")
    views = {
        "kept": ((), customers.where("region = 'north'").select("id", "upper(name) as name")),
        "renamed": ((), named.with_columns(more="1")),
        "computed": ("id", customers.with_columns(id="id % 10")),
        "computed and named": ("id", customers.select("id + 0 as id", "name")),
        "swapped": ("id", customers.select("id as name", "name as id")),
        "left out": ("name", customers.select("name")),
        "joined": ((), orders.join(named, on="customer", how="left")),
        "joined to what is not unique": (
            "order_id",
            orders.join(customers.select("1L as id", "name"), on={"customer": "id"}),
        ),
    }
    for name, (key, rows) in views.items():
        app.view(name=name.replace(" ", "-"), key=key)(lambda rows=rows: rows)
    return {each.view.name.replace("-", " "): each for each in plan_app(app, spark).graphs}


@pytest.mark.parametrize(
    "view, key", [("kept", ("id",)), ("renamed", ("customer",)), ("joined", ("order_id",))]
)
def test_a_key_that_steps_leave_as_it_is_needs_no_operator(planned, view, key):
    assert (planned[view].schema.key, planned[view].picks_rows) == (key, False)


@pytest.mark.parametrize(
    "view", ["computed", "computed and named", "swapped", "left out", "joined to what is not unique"]
)
def test_one_that_they_change_is_not_certain(planned, view):
    assert planned[view].picks_rows
