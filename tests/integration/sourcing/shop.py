"""An application for tests: customers and their orders, with personal fields."""

from tests.unit.sourcing.customers import (
    Customer,
    Order,
    decide,
    decide_order,
    evolve,
    evolve_order,
)

from headrace import App

app = App("shop")
customer = app.entity(
    "customer", decide=decide, evolve=evolve, initial=Customer(), partitions=2, snapshot_every=5
)
order = app.entity(
    "order",
    decide=decide_order,
    evolve=evolve_order,
    initial=Order(),
    partitions=2,
    snapshot_every=5,
    subject="customer",
)
