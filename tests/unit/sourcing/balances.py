"""Projections of the accounts and customers of these tests."""

from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from tests.unit.sourcing.accounts import Deposited, Withdrawn
from tests.unit.sourcing.customers import Registered, Renamed


@dataclass(frozen=True)
class Balance:
    balance: int
    changes: int
    last: datetime
    by: str | None = None


def balances(row: Balance | None, happened) -> Balance | None:
    """The balance of every account that is not empty."""
    amount = happened.event.amount if isinstance(happened.event, Deposited) else -happened.event.amount
    row = row or Balance(0, 0, happened.at)
    row = replace(
        row,
        balance=row.balance + amount,
        changes=row.changes + 1,
        last=happened.at,
        by=happened.by or None,
    )
    return row if row.balance else None


@dataclass(frozen=True)
class Amounts:
    times: int
    share: Decimal = Decimal("1.5")
    seen: tuple[int, ...] = ()
    notes: dict[str, str] | None = None


def amounts(row: Amounts | None, happened) -> Amounts:
    """How often an account was changed by an amount."""
    row = row or Amounts(0)
    return Amounts(row.times + 1, row.share / 3, (*row.seen, happened.version), {"by": happened.by})


@dataclass(frozen=True)
class Person:
    name: str | None
    country: str


def people(row: Person | None, happened) -> Person:
    event = happened.event
    return Person(event.name, row.country if row else event.country)


ACCOUNT_EVENTS = frozenset({Deposited, Withdrawn})
CUSTOMER_EVENTS = frozenset({Registered, Renamed})
