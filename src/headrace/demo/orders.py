"""Orders of a shop whose clock runs sixty times too fast; the same seed gives the same orders."""

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

__all__ = ["SCHEMA", "Order", "Tally", "Totals", "orders"]

SCHEMA = "order_id string, customer_id long, amount_cents long, placed_at timestamp"
OPENING = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
SHOP_SECONDS_PER_SECOND = 60


class Order(NamedTuple):
    """One order; amounts are whole cents, so that sums compare exactly."""

    order_id: str
    customer_id: int
    amount_cents: int
    placed_at: datetime

    @property
    def minute(self) -> str:
        return self.placed_at.strftime("%Y-%m-%d %H:%M")

    def fields(self) -> dict[str, str | int]:
        """The order as it is sent."""
        return {**self._asdict(), "placed_at": self.placed_at.isoformat(timespec="milliseconds")}


class Totals(NamedTuple):
    """How many orders, and how much they sum to."""

    orders: int
    cents: int


@dataclass(slots=True)
class Tally:
    """Totals per minute, as orders come in."""

    minutes: dict[str, Totals] = field(default_factory=lambda: defaultdict(lambda: Totals(0, 0)))

    def add(self, minute: str, cents: int) -> None:
        before = self.minutes[minute]
        self.minutes[minute] = Totals(before.orders + 1, before.cents + cents)


def orders(seed: int, rate: int) -> Iterator[Order]:
    """Endless orders, `rate` of them a second of ours, slightly out of order as real ones are."""
    chance = random.Random(seed)  # noqa: S311 - made-up orders, not secrets
    step = timedelta(seconds=SHOP_SECONDS_PER_SECOND / rate)
    number = 0
    while True:
        late = timedelta(seconds=chance.uniform(0, 20))
        yield Order(
            order_id=f"order-{number:08d}",
            customer_id=chance.randrange(10_000),
            amount_cents=chance.randrange(100, 20_000),
            placed_at=OPENING + number * step + timedelta(seconds=20) - late,
        )
        number += 1
