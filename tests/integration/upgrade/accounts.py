"""Accounts for tests: an application whose entities an earlier version serves, and then this one."""

from dataclasses import dataclass

from headrace import App, Rejected

app = App("accounts")


@dataclass(frozen=True)
class Change:
    amount: int


@dataclass(frozen=True)
class Changed:
    amount: int


@dataclass(frozen=True)
class Account:
    balance: int = 0
    changes: int = 0


def decide(command: Change, account: Account) -> list[Changed]:
    if account.balance + command.amount < 0:
        raise Rejected("insufficient-funds", f"the balance is {account.balance}")
    return [Changed(command.amount)]


def evolve(account: Account, event: Changed) -> Account:
    return Account(account.balance + event.amount, account.changes + 1)


app.entity("account", decide=decide, evolve=evolve, initial=Account(), partitions=2, snapshot_every=20)
