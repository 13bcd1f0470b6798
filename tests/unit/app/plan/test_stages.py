"""How the planner cuts a dataflow into stages, and what it says of that."""

from headrace import App, agg
from headrace.app.plan.dataflow import plan_graph
from headrace.app.plan.graph import AppGraph, ViewLine, as_text
from headrace.app.plan.stages import stages_of


def planned():
    app = App("shop")
    customers = app.table("customers", key="id", schema="id long, region string")
    orders = app.table("orders", key="order_id", schema="order_id long, customer_id long")

    @app.view
    def per_region():
        joined = orders.join(customers, on={"customer_id": "id"}, how="left")
        return joined.group_by("region").agg(n=agg.count())

    return plan_graph("shop", app.views["per_region"], per_region(), None)


def test_tables_are_fused_and_joins_and_groups_split_off_with_a_reason():
    first, second, third = stages_of(planned())
    assert [(each.name, each.kind) for each in first.operators] == [
        ("table orders", "table"),
        ("table customers", "table"),
    ]
    assert first.operators[0].why.startswith("fused with table customers")
    assert [(each.name, each.kind) for each in second.operators] == [("left join on customer_id", "join")]
    assert second.operators[0].keys == (("customer_id",), ("id",))
    assert second.why.startswith("split: reads what table customers, table orders makes")
    assert [each.kind for each in third.operators] == ["group"]


def test_the_plan_as_text_and_as_json_has_every_stage_and_its_reasons():
    stages = stages_of(planned())
    steps = tuple(each.name for stage in stages for each in stage.operators)
    line = ViewLine(
        "orders + customers", steps, "per_region", "sqlite", stages=stages, why="a query of its own"
    )
    graph = AppGraph("shop", {}, (line,))
    text = as_text(graph)
    assert "stage 0: table orders  ← orders by order_id  (rows of the topics meet by key" in text
    assert (
        "stage 1: left join on customer_id  ← table orders by customer_id; table customers by id  (split: "
        in text
    )
    (view,) = graph.to_json()["views"]
    assert [each["stage"] for each in view["stages"]] == [0, 1, 2]
    assert view["stages"][1]["operators"][0]["inputs"] == [
        {"input": "table orders", "by": ["customer_id"]},
        {"input": "table customers", "by": ["id"]},
    ]


def test_a_key_that_does_not_tell_rows_apart_is_warned_of():
    app = App("shop")
    customers = app.table("customers", key="id", schema="id long, region string")

    @app.view(key="region")
    def one_of_each():
        return customers

    stages = stages_of(plan_graph("shop", app.views["one_of_each"], customers, None))
    assert "nothing says that region tells rows apart" in stages[1].why


def test_what_is_grouped_by_the_key_of_its_join_needs_no_shuffle_and_the_plan_says_why():
    app = App("shop")
    customers = app.table("customers", key="id", schema="id long, region string")
    orders = app.table("orders", key="order_id", schema="order_id long, customer_id long")

    @app.view
    def per_customer():
        joined = orders.join(customers, on={"customer_id": "id"}, how="left")
        return joined.group_by("customer_id").agg(n=agg.count())

    stages = stages_of(plan_graph("shop", app.views["per_customer"], per_customer(), None))
    assert [each.is_shuffled for each in stages] == [True, True, False]
    assert stages[2].why == (
        "no shuffle: reads what left join on customer_id makes where it is: it is by customer_id already"
    )
    assert stages[2].to_json()["is_shuffled"] is False
