"""An application for tests: accounts, and a projection of their balances."""

import os

from tests.unit.sourcing.accounts import Account, Deposited, Withdrawn, decide, evolve
from tests.unit.sourcing.balances import amounts, balances

from headrace import App

app = App(os.environ.get("HEADRACE_TEST_APP", "projectedbank"))
account = app.entity(
    "account", decide=decide, evolve=evolve, initial=Account(), partitions=2, snapshot_every=50
)
app.projection(Deposited, Withdrawn)(balances)
app.projection(Deposited, Withdrawn, key=("entity", "amount"))(amounts)
