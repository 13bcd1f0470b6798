"""Orders that are cancelled if no payment comes within an hour, also when nothing else happens."""

import os
from dataclasses import dataclass, replace
from datetime import timedelta

from headrace import App, Rejected

app = App("orders")
TIME_TO_PAY = timedelta(seconds=float(os.environ.get("TIME_TO_PAY_S", "3600")))


@dataclass(frozen=True)
class Place:
    amount: int


@dataclass(frozen=True)
class Pay:
    amount: int


@dataclass(frozen=True)
class CancelIfUnpaid:
    pass


@dataclass(frozen=True)
class Placed:
    amount: int


@dataclass(frozen=True)
class Paid:
    amount: int


@dataclass(frozen=True)
class Cancelled:
    reason: str


@dataclass(frozen=True)
class Order:
    status: str = "new"
    amount: int = 0


def decide(command: Place | Pay | CancelIfUnpaid, order: Order) -> list[Placed | Paid | Cancelled]:
    match command:
        case Place(amount):
            if order.status != "new":
                raise Rejected("placed-before", f"the order is {order.status}")
            return [Placed(amount)]
        case Pay(amount):
            if order.status != "placed" or amount != order.amount:
                raise Rejected("not-payable", f"the order is {order.status}, its amount {order.amount}")
            return [Paid(amount)]
        case CancelIfUnpaid():
            return [Cancelled("no payment in time")] if order.status == "placed" else []


def evolve(order: Order, event: Placed | Paid | Cancelled) -> Order:
    match event:
        case Placed(amount):
            return Order("placed", amount)
        case Paid():
            return replace(order, status="paid")
        case Cancelled():
            return replace(order, status="cancelled")


order = app.entity("order", decide=decide, evolve=evolve, initial=Order())


# Stock is another entity: what happens to an order has consequences there.
@dataclass(frozen=True)
class Reserve:
    order: str


@dataclass(frozen=True)
class Release:
    order: str


@dataclass(frozen=True)
class Reserved:
    order: str


@dataclass(frozen=True)
class Released:
    order: str


@dataclass(frozen=True)
class Stock:
    reserved: tuple[str, ...] = ()


def decide_stock(command: Reserve | Release, stock: Stock) -> list[Reserved | Released]:
    match command:
        case Reserve(name):
            return [Reserved(name)]
        case Release(name):
            return [Released(name)] if name in stock.reserved else []


def evolve_stock(stock: Stock, event: Reserved | Released) -> Stock:
    others = tuple(each for each in stock.reserved if each != event.order)
    return Stock((*others, event.order) if isinstance(event, Reserved) else others)


stock = app.entity("stock", decide=decide_stock, evolve=evolve_stock, initial=Stock())


@app.react(Placed)
def watch_payment(placed):
    """An order reserves stock, and is looked at again when the time to pay is over."""
    return [
        stock("shelf").command(Reserve(placed.entity)),
        order(placed.entity).command(CancelIfUnpaid(), after=TIME_TO_PAY),
    ]


@app.react(Cancelled)
def give_back(cancelled):
    return stock("shelf").command(Release(cancelled.entity))
