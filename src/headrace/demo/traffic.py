"""What happens in the shop, with everything that goes wrong in life; the same seed gives the same events.

The shop's clock runs sixty times too fast, and begins far enough in the past never to
overtake ours, so that minutes pass in seconds. Some events are late, some come twice,
some cannot be read, some claim to be from the future.
"""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson

__all__ = ["SHOP_SECONDS_PER_SECOND", "Event", "traffic"]

SHOP_SECONDS_PER_SECOND = 60

_REGIONS = ("north", "south", "east", "west")
_PRODUCTS = ("anvil", "bellows", "chisel", "drill", "etau", "file", "gauge", "hammer")
_PAGES = ("/", "/search", "/anvil", "/drill", "/basket", "/checkout")


class Event(NamedTuple):
    """One record to send, and what is wrong with it, if anything is."""

    topic: str
    key: bytes
    value: bytes
    fault: str | None = None


def traffic(seed: int, rate: int, opening: datetime) -> Iterator[Event]:
    """Endless events, `rate` of them a second of ours: orders, clicks and payments in turn."""
    chance = random.Random(seed)  # noqa: S311 - made-up events, not secrets
    step = timedelta(seconds=SHOP_SECONDS_PER_SECOND / rate)
    makers = (_order, _click, _payment)
    number = 0
    while True:
        event = makers[number % 3](chance, number, opening + number * step)
        yield event
        if event.fault is None and chance.random() < 0.01:
            yield event._replace(fault="duplicate")
        number += 1


def _order(chance: random.Random, number: int, now: datetime) -> Event:
    fields = {
        "order_id": f"order-{number:08d}",
        "region": chance.choice(_REGIONS),
        "product": chance.choice(_PRODUCTS),
        "quantity": chance.randrange(1, 5),
        "amount": round(chance.uniform(1, 200), 2),
    }
    fault, placed_at = _when(chance, now)
    return _event("shop.orders", str(fields["order_id"]), fields | {"placed_at": placed_at}, fault, chance)


def _click(chance: random.Random, number: int, now: datetime) -> Event:
    del number
    fault, clicked_at = _when(chance, now)
    visitor = f"visitor-{chance.randrange(300)}"
    fields = {"visitor": visitor, "page": chance.choice(_PAGES), "clicked_at": clicked_at}
    return _event("shop.clicks", visitor, fields, fault, chance)


def _payment(chance: random.Random, number: int, now: datetime) -> Event:
    """The terminal's clock is wrong by days; what it says of its own delay is right."""
    card = f"card-{chance.randrange(200)}"
    wrong = timedelta(days=chance.randrange(-3, 4))
    delay = timedelta(seconds=chance.expovariate(2))
    fields = {
        "payment_id": f"payment-{number:08d}",
        "card": card,
        "ok": chance.random() > 0.1,
        "paid_at": _text(now + wrong - delay),
        "sent_at": _text(now + wrong),
    }
    return _event("shop.payments", card, fields, "late" if delay > timedelta(seconds=2) else None, chance)


def _when(chance: random.Random, now: datetime) -> tuple[str | None, str]:
    draw = chance.random()
    if draw < 0.02:
        return "late", _text(now - timedelta(seconds=chance.uniform(60, 600)))
    if draw < 0.021:
        return "future", _text(datetime.now(UTC) + timedelta(days=365))
    return None, _text(now - timedelta(seconds=chance.uniform(0, 15)))


def _event(topic: str, key: str, fields: dict[str, Any], fault: str | None, chance: random.Random) -> Event:
    value = orjson.dumps(fields)
    if fault is None and chance.random() < 0.002:
        return Event(topic, key.encode(), value[: len(value) // 2], "malformed")
    return Event(topic, key.encode(), value, fault)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
