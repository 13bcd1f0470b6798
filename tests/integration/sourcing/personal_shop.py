"""An application for tests: personal fields through every kind of state that Spark and the stores keep."""

import os

from tests.unit.sourcing.balances import people
from tests.unit.sourcing.customers import Customer, Registered, Renamed, decide, evolve

from headrace import App, agg, tumbling

app = App(os.environ.get("HEADRACE_TEST_APP", "personal"))
customer = app.entity(
    "customer", decide=decide, evolve=evolve, initial=Customer(), partitions=2, snapshot_every=5
)
app.projection(Registered, Renamed)(people)

letters = app.stream(
    f"{app.name}.letters",
    schema="customer string, email string, country string, at timestamp",
    event_time="at",
    lateness="0 seconds",
    partitions=1,
)
named = (
    customer.events.where("type = 'Registered'")
    .with_columns(name="data.name", country="data.country")
    .select("entity", "name", "country", "at")
)


@app.view(key="entity", last="arrival")
def names():
    """The rows of events."""
    return named


@app.view
def letters_per_minute():
    """A window, which drops what is late."""
    return letters.window(tumbling("1 minute"), by="customer").agg(
        last=agg.last("email"), all=agg.collect("email"), country=agg.last("country")
    )


@app.view
def letters_by_country():
    """A group, which keeps sealed values in its state."""
    return letters.group_by("country").agg(emails=agg.collect("email"), letters=agg.count())


@app.view(key=["customer", "at"])
def letters_with_names():
    """A join, which keeps the rows of both sides."""
    names = (
        named.select("entity", "name", "at").with_columns(happened="at").select("entity", "name", "happened")
    )
    return letters.join(names, on={"customer": "entity"}, within="3650 days")
