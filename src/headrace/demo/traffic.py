"""The events of the shop, with everything that goes wrong in real life; pure, in the shop's own time.

Time is divided into slots, `rate` of them per second, with one event each. The slot's number is
part of its identifiers, so a process that continues at the next slot repeats none. Some events
are late, some are sent twice, some cannot be read, some are dated in the future, and some
terminals have clocks that are wrong by days. Changes of customers are none of them: they go to the
shop's database.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson

__all__ = [
    "FAULTS",
    "TABLES",
    "TOPICS",
    "CustomerChange",
    "ShopEvent",
    "beginning",
    "first_customers",
    "slot_at",
    "time_of",
    "traffic",
]

TABLES = ("shop.posts", "shop.follows")  # topics that the shop reads as tables
TOPICS = ("shop.orders", "shop.clicks", "shop.searches", "shop.payments", *TABLES)
FAULTS = ("late", "duplicate", "skewed", "future", "malformed")

_OPENED = datetime(2026, 1, 1, tzinfo=UTC)  # slots are counted from here
_REGIONS = ("north", "north", "north", "south", "south", "east", "west")
_PRICES = {
    "anvil": 120.0,
    "bellows": 65.5,
    "chisel": 14.25,
    "drill": 89.9,
    "file": 9.5,
    "gauge": 31.0,
    "hammer": 19.75,
    "tongs": 27.4,
}
_PRODUCTS = ("hammer", "hammer", "hammer", "file", "file", "chisel", *_PRICES)  # some sell better
_IN_BULK = ("anvil", "drill")
_PAGES = ("/", "/search", "/anvil", "/drill", "/hammer", "/basket", "/checkout")
_SLOTS_PER_VISITOR = 75
_VISIT_S = 60
_CARDS = 500
_TERMINALS = 40
_TERMINALS_WRONG = 8
_STOLEN_CARD_FOR_S = 120
_CLOSED_FOR = timedelta(minutes=2)
_CUSTOMERS = 300
_FIRST_NAMES = ("Ada", "Bo", "Cleo", "Dag", "Eva", "Finn", "Gro", "Hugo", "Ines", "Jan", "Kim", "Lena")
_LAST_NAMES = ("Berg", "Costa", "Dubois", "Eriksen", "Fuchs", "Gomez", "Haas", "Ivens", "Janssens", "Koski")
_TIERS = ("basic", "basic", "silver", "gold")
_CITIES = ("Bergen", "Ghent", "Graz", "Lyon", "Porto", "Turku")
_MEMBERS = 40  # of the shop's forum
_POSTS_OF_MEMBER = 8


class ShopEvent(NamedTuple):
    """One record to send, the time at which the shop received it, and its fault, if it has one.

    A value that is None says that what had the key is gone.
    """

    topic: str
    key: bytes
    value: bytes | None
    timestamp_ms: int
    fault: str | None = None


class CustomerChange(NamedTuple):
    """A customer as the shop's database has it from now on, or None where the customer is gone."""

    customer_id: str
    row: Mapping[str, str] | None
    at_ms: int


class _Moment(NamedTuple):
    """One slot."""

    slot: int
    rate: int
    time: datetime
    chance: random.Random


def slot_at(time: datetime, rate: int) -> int:
    """The slot that a moment is in."""
    return int((time - _OPENED).total_seconds() * rate)


def time_of(slot: int, rate: int) -> datetime:
    """When a slot begins."""
    return _OPENED + timedelta(seconds=slot / rate)


def beginning(now: datetime, last: datetime, history: timedelta) -> datetime:
    """When the shop opens, given the time of its last record: not before now minus the history.

    Readers of the log may have published results after a silence: up to two minutes of the
    time while it was closed are therefore skipped.
    """
    return max(now - history, min(now, last + _CLOSED_FOR))


def first_customers(since_ms: int) -> Iterator[CustomerChange]:
    """Those that the shop has when it opens for the first time."""
    for number in range(_CUSTOMERS):
        tier, city = _TIERS[number % len(_TIERS)], _CITIES[number % len(_CITIES)]
        yield CustomerChange(f"customer-{number}", _customer_row(number, tier, city), since_ms)


def traffic(seed: int, rate: int, first_slot: int) -> Iterator[tuple[ShopEvent | CustomerChange, ...]]:
    """The events of each slot, endlessly; the same arguments give the same events."""
    chance = random.Random(f"{seed} {first_slot}")  # noqa: S311 - made-up events, not secrets
    slot = first_slot
    while True:
        maker = chance.choice(_MAKERS)
        event = maker(_Moment(slot, rate, time_of(slot, rate), chance))
        yield (event,) if isinstance(event, CustomerChange) else _doubled(event, chance)
        slot += 1


def _doubled(event: ShopEvent, chance: random.Random) -> tuple[ShopEvent, ...]:
    """An event, or now and then the same one twice."""
    is_doubled = event.fault is None and chance.random() < 0.01
    return (event, event._replace(fault="duplicate")) if is_doubled else (event,)


def _order(now: _Moment) -> ShopEvent:
    in_bulk = now.chance.random() < 0.004
    product = now.chance.choice(_IN_BULK if in_bulk else _PRODUCTS)
    quantity = now.chance.randrange(12, 40) if in_bulk else now.chance.choice((1, 1, 1, 2, 2, 3))
    fields = {
        "order_id": f"order-{now.slot}",
        "customer_id": _customer_id(now),
        "region": now.chance.choice(_REGIONS),
        "product": product,
        "quantity": quantity,
        "amount": round(quantity * _PRICES[product], 2),
    }
    return _happened(now, "shop.orders", "order_id", fields, "placed_at")


def _click(now: _Moment) -> ShopEvent:
    fields = {"visitor": _visitor(now), "page": now.chance.choice(_PAGES)}
    return _happened(now, "shop.clicks", "visitor", fields, "clicked_at")


def _search(now: _Moment) -> ShopEvent:
    term = now.chance.choice(_PRODUCTS)
    is_typo = now.chance.random() < 0.05
    fields = {
        "search_id": f"search-{now.slot}",
        "visitor": _visitor(now),
        "term": term[::-1] if is_typo else term,
        "found": 0 if is_typo else now.chance.randrange(1, 40),
    }
    return _happened(now, "shop.searches", "visitor", fields, "searched_at")


def _payment(now: _Moment) -> ShopEvent:
    """A terminal with a wrong clock still knows how long ago the payment was; its times are off by days."""
    terminal = now.chance.randrange(_TERMINALS)
    wrong = timedelta(days=terminal - _TERMINALS_WRONG // 2) if terminal < _TERMINALS_WRONG else timedelta()
    delay = timedelta(seconds=now.chance.expovariate(2))
    is_stolen = now.chance.random() < 0.02  # a card that somebody tries again and again
    card = int(now.time.timestamp() / _STOLEN_CARD_FOR_S) if is_stolen else now.chance.randrange(_CARDS)
    fields = {
        "payment_id": f"payment-{now.slot}",
        "terminal": f"terminal-{terminal}",
        "card": f"card-{card % _CARDS}",
        "ok": not is_stolen and now.chance.random() > 0.03,
        "paid_at": _text(now.time + wrong - delay),
        "sent_at": _text(now.time + wrong),
    }
    fault = "late" if delay > timedelta(seconds=2) else "skewed" if wrong else None
    return _event(now, "shop.payments", "card", fields, fault)


def _customer(now: _Moment) -> CustomerChange:
    """Somebody signs up, moves, or is put in another tier; now and then somebody leaves."""
    number = now.chance.randrange(_CUSTOMERS)
    row = _customer_row(number, now.chance.choice(_TIERS), now.chance.choice(_CITIES))
    is_gone = now.chance.random() < 0.02
    return CustomerChange(f"customer-{number}", None if is_gone else row, _milliseconds(now))


def _customer_row(number: int, tier: str, city: str) -> Mapping[str, str]:
    first = _FIRST_NAMES[number % len(_FIRST_NAMES)]
    last = _LAST_NAMES[number // len(_FIRST_NAMES) % len(_LAST_NAMES)]
    return {"name": f"{first} {last}", "tier": tier, "city": city}


def _post(now: _Moment) -> ShopEvent:
    """A member of the forum writes something, rewrites it, or deletes it."""
    member, number = now.chance.randrange(_MEMBERS), now.chance.randrange(_POSTS_OF_MEMBER)
    row = {"author": f"member-{member}", "text": f"I like my {now.chance.choice(_PRODUCTS)}"}
    key = {"post_id": f"post-{member}-{number}"}
    return _row(now, "shop.posts", key, None if now.chance.random() < 0.2 else row)


def _follow(now: _Moment) -> ShopEvent:
    """A member follows another, or no longer does."""
    follower, author = now.chance.sample(range(_MEMBERS), 2)
    key = {"follower": f"member-{follower}", "author": f"member-{author}"}
    return _row(now, "shop.follows", key, None if now.chance.random() < 0.5 else {})


_MAKERS: tuple[Callable[[_Moment], ShopEvent | CustomerChange], ...] = (
    *(_click,) * 8,
    *(_search,) * 5,
    *(_order,) * 4,
    *(_payment,) * 3,
    _customer,
    _post,
    _follow,
)


def _customer_id(now: _Moment) -> str:
    return f"customer-{now.chance.randrange(_CUSTOMERS)}"


def _visitor(now: _Moment) -> str:
    """A visitor who came within the last minute."""
    present = max(1, now.rate * _VISIT_S // _SLOTS_PER_VISITOR)
    return f"visitor-{now.slot // _SLOTS_PER_VISITOR - now.chance.randrange(present)}"


def _happened(now: _Moment, topic: str, key: str, fields: dict[str, Any], time_field: str) -> ShopEvent:
    draw = now.chance.random()
    fault, time = None, now.time - timedelta(seconds=now.chance.uniform(0, 4))
    if draw < 0.01:
        fault, time = "late", now.time - timedelta(seconds=now.chance.uniform(60, 600))
    elif draw < 0.011:
        fault, time = "future", now.time + timedelta(days=365)
    return _event(now, topic, key, {**fields, time_field: _text(time)}, fault)


def _row(now: _Moment, topic: str, key: dict[str, Any], row: dict[str, Any] | None) -> ShopEvent:
    """A row of a table as it is now, by its key; None if it is gone."""
    value = None if row is None else orjson.dumps({**key, **row})
    return ShopEvent(topic, orjson.dumps(key), value, _milliseconds(now))


def _event(now: _Moment, topic: str, key: str, fields: dict[str, Any], fault: str | None) -> ShopEvent:
    value = orjson.dumps(fields)
    if fault is None and now.chance.random() < 0.002:
        value, fault = value[: len(value) // 2], "malformed"
    return ShopEvent(topic, str(fields[key]).encode(), value, _milliseconds(now), fault)


def _milliseconds(now: _Moment) -> int:
    return int(now.time.timestamp() * 1000)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
