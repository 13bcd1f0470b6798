"""Entities with personal fields, for tests: customers, and orders that belong to them."""

from dataclasses import dataclass, replace

from headrace import Personal
from headrace.sourcing import Rejected, make_entity_type


@dataclass(frozen=True)
class Register:
    name: Personal[str]
    country: str
    born: Personal[int] = None


@dataclass(frozen=True)
class Rename:
    name: Personal[str]


@dataclass(frozen=True)
class Registered:
    name: Personal[str]
    country: str
    born: Personal[int] = None


@dataclass(frozen=True)
class Renamed:
    name: Personal[str]


@dataclass(frozen=True)
class Customer:
    names: tuple[str | None, ...] = ()
    country: str = ""


def decide(command: Register | Rename, customer: Customer) -> list[Registered | Renamed]:
    if isinstance(command, Register):
        if customer.names:
            raise Rejected("registered", f"{customer.names[-1]} is registered")
        return [Registered(command.name, command.country, command.born)]
    if command.name == "Crash":
        raise ValueError("cannot rename to Crash")
    return [Renamed(command.name)]


def evolve(customer: Customer, event: Registered | Renamed) -> Customer:
    country = event.country if isinstance(event, Registered) else customer.country
    return replace(customer, names=(*customer.names, event.name), country=country)


@dataclass(frozen=True)
class Place:
    customer: str
    address: Personal[dict[str, str]]


@dataclass(frozen=True)
class Placed:
    customer: str
    address: Personal[dict[str, str]]


@dataclass(frozen=True)
class Order:
    addresses: tuple[dict[str, str] | None, ...] = ()


def decide_order(command: Place, order: Order) -> Placed:
    return Placed(command.customer, command.address)


def evolve_order(order: Order, event: Placed) -> Order:
    return Order((*order.addresses, event.address))


def customer_type(**options):
    return make_entity_type("customer", decide, evolve, Customer(), **options)


def order_type(**options):
    return make_entity_type("order", decide_order, evolve_order, Order(), subject="customer", **options)
