"""What happens in the shop, with everything that goes wrong in life; pure, and in the shop's own time.

Time is cut into slots, `rate` of them a second, and in each slot one thing happens. A slot's
number is in its identifiers, so whoever goes on at the next slot repeats none. Some events are late,
some come twice, some cannot be read, some claim to be from the future, and some terminals
have clocks that are wrong by days.
"""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson

__all__ = ["FAULTS", "TOPICS", "Event", "beginning", "slot_at", "time_of", "traffic"]

TOPICS = ("shop.orders", "shop.clicks", "shop.searches", "shop.payments")
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


class Event(NamedTuple):
    """One record to send, when the shop says it received it, and what is wrong with it, if anything is."""

    topic: str
    key: bytes
    value: bytes
    timestamp_ms: int
    fault: str | None = None


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
    """When the shop opens, with the last record of an earlier day: not before now minus the history.

    Whoever reads the log may have taken a silence for the end, and published: what it was
    closed for, at most two minutes, is not made up for.
    """
    return max(now - history, min(now, last + _CLOSED_FOR))


def traffic(seed: int, rate: int, first_slot: int) -> Iterator[tuple[Event, ...]]:
    """Endlessly the events of each slot, from the first on; the same arguments give the same ones."""
    chance = random.Random(f"{seed} {first_slot}")  # noqa: S311 - made-up events, not secrets
    slot = first_slot
    while True:
        maker = chance.choice(_MAKERS)
        event = maker(_Moment(slot, rate, time_of(slot, rate), chance))
        is_doubled = event.fault is None and chance.random() < 0.01
        yield (event, event._replace(fault="duplicate")) if is_doubled else (event,)
        slot += 1


def _order(now: _Moment) -> Event:
    in_bulk = now.chance.random() < 0.004
    product = now.chance.choice(_IN_BULK if in_bulk else _PRODUCTS)
    quantity = now.chance.randrange(12, 40) if in_bulk else now.chance.choice((1, 1, 1, 2, 2, 3))
    fields = {
        "order_id": f"order-{now.slot}",
        "region": now.chance.choice(_REGIONS),
        "product": product,
        "quantity": quantity,
        "amount": round(quantity * _PRICES[product], 2),
    }
    return _happened(now, "shop.orders", "order_id", fields, "placed_at")


def _click(now: _Moment) -> Event:
    fields = {"visitor": _visitor(now), "page": now.chance.choice(_PAGES)}
    return _happened(now, "shop.clicks", "visitor", fields, "clicked_at")


def _search(now: _Moment) -> Event:
    term = now.chance.choice(_PRODUCTS)
    is_typo = now.chance.random() < 0.05
    fields = {
        "visitor": _visitor(now),
        "term": term[::-1] if is_typo else term,
        "found": 0 if is_typo else now.chance.randrange(1, 40),
    }
    return _happened(now, "shop.searches", "visitor", fields, "searched_at")


def _payment(now: _Moment) -> Event:
    """A terminal whose clock is wrong still knows how long ago it was paid; what it says is off by days."""
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


_MAKERS: tuple[Callable[[_Moment], Event], ...] = (
    *(_click,) * 8,
    *(_search,) * 5,
    *(_order,) * 4,
    *(_payment,) * 3,
)


def _visitor(now: _Moment) -> str:
    """Somebody who came within the last minute."""
    present = max(1, now.rate * _VISIT_S // _SLOTS_PER_VISITOR)
    return f"visitor-{now.slot // _SLOTS_PER_VISITOR - now.chance.randrange(present)}"


def _happened(now: _Moment, topic: str, key: str, fields: dict[str, Any], time_field: str) -> Event:
    draw = now.chance.random()
    fault, time = None, now.time - timedelta(seconds=now.chance.uniform(0, 4))
    if draw < 0.01:
        fault, time = "late", now.time - timedelta(seconds=now.chance.uniform(60, 600))
    elif draw < 0.011:
        fault, time = "future", now.time + timedelta(days=365)
    return _event(now, topic, key, {**fields, time_field: _text(time)}, fault)


def _event(now: _Moment, topic: str, key: str, fields: dict[str, Any], fault: str | None) -> Event:
    value = orjson.dumps(fields)
    if fault is None and now.chance.random() < 0.002:
        value, fault = value[: len(value) // 2], "malformed"
    return Event(topic, str(fields[key]).encode(), value, int(now.time.timestamp() * 1000), fault)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
