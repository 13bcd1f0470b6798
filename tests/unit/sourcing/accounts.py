"""A small entity type for tests: an account that never goes below zero."""

from dataclasses import dataclass, replace

from headrace.sourcing import Rejected, make_entity_type


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Withdraw:
    amount: int


@dataclass(frozen=True)
class Move:
    """In and out at once: several events of one command."""

    amounts: tuple[int, ...]


@dataclass(frozen=True)
class Break:
    """A defect of the application."""


@dataclass(frozen=True)
class Deposited:
    amount: int


@dataclass(frozen=True)
class Withdrawn:
    amount: int


@dataclass(frozen=True)
class Account:
    balance: int = 0
    changes: int = 0


def decide(command: Deposit | Withdraw | Move | Break, account: Account) -> list[Deposited | Withdrawn]:
    match command:
        case Deposit(amount):
            return [Deposited(amount)]
        case Withdraw(amount):
            if amount > account.balance:
                raise Rejected("insufficient-funds", f"the balance is {account.balance}")
            return [Withdrawn(amount)]
        case Move(amounts):
            if account.balance + sum(amounts) < 0:
                raise Rejected("insufficient-funds", f"the balance is {account.balance}")
            return [Deposited(each) if each >= 0 else Withdrawn(-each) for each in amounts]
    raise ZeroDivisionError("broken")


def evolve(account: Account, event: Deposited | Withdrawn) -> Account:
    amount = event.amount if isinstance(event, Deposited) else -event.amount
    return replace(account, balance=account.balance + amount, changes=account.changes + 1)


def account_type(name="account", **options):
    return make_entity_type(name, decide, evolve, Account(), **options)
