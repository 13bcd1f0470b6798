"""Why a dataflow cannot go on from its checkpoint, as its author is told."""

from headrace import App, agg
from headrace.app.plan.dataflow import plan_graph
from headrace.app.query.checkpoint.fit import describe_graph, graph_reasons


def planned(make, columns="id long, region string"):
    app = App("shop")
    customers = app.table("customers", key="id", schema=columns)
    orders = app.table("orders", key="order", schema="order long, id long, amount double")
    app.view(name="v")(lambda: make(customers, orders))
    return plan_graph("shop", app.views["v"], app.views["v"].function(), None)


def per_region(**aggregates):
    return lambda customers, _: customers.group_by("region").agg(n=agg.count(), **aggregates)


def reason(before, now):
    (found,) = graph_reasons(describe_graph(before), now)
    return found


def test_an_aggregate_that_is_new_is_named():
    found = reason(planned(per_region()), planned(per_region(most=agg.max("id"))))
    assert found.startswith("nodes[1].aggregates.most was absent and is {")


def test_another_column_of_a_topic_is_named():
    found = reason(planned(per_region()), planned(per_region(), "id long, region binary"))
    assert found == "sources.customers.fields.region was 'string' and is 'binary'"


def test_other_operators_are_told_by_their_names_and_not_at_length():
    wide = "id long, " + ", ".join(f"column_with_a_name_{number} string" for number in range(40))
    found = reason(
        planned(lambda customers, orders: orders.join(customers, on="id"), wide),
        planned(lambda customers, orders: orders.join(customers, on="id").distinct("id"), wide),
    )
    operators = "table, table, table join"
    assert found == f"nodes was ({operators}) and is ({operators}, distinct)"
    found = reason(planned(lambda customers, _: customers), planned(lambda customers, _: customers, wide))
    assert len(found) < 300
