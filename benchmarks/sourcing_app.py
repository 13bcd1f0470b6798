"""The application of `sourcing.py`: accounts with deposits."""

from dataclasses import dataclass

from headrace import App

app = App("bench")


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Deposited:
    amount: int


@dataclass(frozen=True)
class Account:
    balance: int = 0


def decide(command: Deposit, _: Account) -> list[Deposited]:
    return [Deposited(command.amount)]


def evolve(account: Account, event: Deposited) -> Account:
    return Account(account.balance + event.amount)


account = app.entity("account", decide=decide, evolve=evolve, initial=Account(), partitions=2)
