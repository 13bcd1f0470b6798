"""An application for tests: accounts that never go below zero."""

from tests.unit.sourcing.accounts import Account, decide, evolve

from headrace import App

app = App("bank")
account = app.entity(
    "account", decide=decide, evolve=evolve, initial=Account(), partitions=2, snapshot_every=50
)
