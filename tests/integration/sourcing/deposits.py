"""An application for tests: deposits in accounts, and every kind of view between a command and a read.

Started as any other; `HEADRACE_TEST_APP` names it, so that several tests can share a log.
"""

import os
from dataclasses import dataclass

from headrace import App, agg, tumbling

app = App(os.environ.get("HEADRACE_TEST_APP", "deposits"))


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Deposited:
    amount: int


@dataclass(frozen=True)
class Account:
    balance: int = 0


def decide(command: Deposit, account: Account) -> list[Deposited]:
    return [Deposited(command.amount)]


def evolve(account: Account, event: Deposited) -> Account:
    return Account(account.balance + event.amount)


account = app.entity("account", decide=decide, evolve=evolve, initial=Account(), partitions=2)
deposits = account.events.with_columns(amount="data.amount")
owners = app.stream(f"{app.name}.owners", schema="id string, owner string", lateness="1 hour", partitions=2)


@app.view
def per_minute():
    """A window."""
    return deposits.window(tumbling("1 minute"), by="entity", emit="update").agg(deposits=agg.count())


@app.view(key=["entity", "version"])
def with_owner():
    """A join of two topics."""
    return deposits.join(owners, on={"entity": "id"}, within="1 hour")


@app.topic(f"{app.name}.seen", key="entity")
def seen():
    """A first stage that lets only every other deposit through."""
    return deposits.where("amount % 2 = 0").select("entity", "version", "amount", "at")


second = app.stream(f"{app.name}.seen", schema="entity string, version long, amount long, at timestamp")


@app.view
def second_per_minute():
    """A second stage, in windows."""
    return second.window(tumbling("1 minute"), by="entity", emit="update").agg(deposits=agg.count())


@app.topic(f"{app.name}.again", key="entity")
def again():
    """A second stage that is a first one itself."""
    return second


third = app.stream(f"{app.name}.again", schema="entity string, version long, amount long, at timestamp")


@app.view(key=["entity", "version"])
def third_with_owner():
    """A join of a third stage with another topic."""
    return third.join(owners, on={"entity": "id"}, within="1 hour")
