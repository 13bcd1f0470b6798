"""What the shop's topics and views must hold, computed in plain Python from what other clients wrote.

Nothing here is the product's: records are confluent-kafka's, decoded by `json`, and the shop's rules are
written down once more. Nothing that an application wrote is used, except to be compared.
"""

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from confluent_kafka import Message

EVENT_TIMES = {
    "shop.orders": "placed_at",
    "shop.clicks": "clicked_at",
    "shop.searches": "searched_at",
    "shop.payments": None,  # corrected by when they were sent, so that none is ahead
}
TABLES = ("shop.customers", "shop.posts", "shop.follows")
LARGE_ORDERS, DEAD = "shop.large-orders", "shop.dead"
TOPICS = (*EVENT_TIMES, *TABLES, LARGE_ORDERS, DEAD)
MAX_AHEAD = timedelta(hours=1)


class Order(NamedTuple):
    amount: float
    tier: str | None


class Log:
    """The committed records of the shop's topics."""

    def __init__(self, topics: dict[str, list[Message]]) -> None:
        self.topics = topics
        self.unreadable = {place(each) for each in self._events() if not is_readable(each)}

    def __len__(self) -> int:
        """How many records others than the application have written."""
        return sum(len(self.topics[each]) for each in (*EVENT_TIMES, *TABLES))

    def orders(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The place and the fields of every order that can be read; one sent twice is two."""
        for each in self.topics["shop.orders"]:
            if place(each) not in self.unreadable:
                yield place(each), json.loads(each.value())

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """The table: the last value of every key that is not deleted."""
        last = {each.key(): each.value() for each in self.topics[topic]}
        return [json.loads(value) for value in last.values() if value is not None]

    def dead_letters(self) -> Counter[tuple[str, str]]:
        """Which query gave which event up, and how often it said so."""
        letters = [headers(each, "headrace.dead.") for each in self.topics[DEAD]]
        return Counter(
            (each["query"], f"{each['topic']}:{each['partition']}:{each['offset']}")
            for each in letters
            if each.get("topic") in EVENT_TIMES
        )

    def large_orders(self) -> Counter[str]:
        """From which records those of the derived topic were made, and how often."""
        return Counter(headers(each, "headrace.")["source"] for each in self.topics[LARGE_ORDERS])

    def _events(self) -> Iterator[Message]:
        return (each for topic in EVENT_TIMES for each in self.topics[topic])


def place(record: Message) -> str:
    return f"{record.topic()}:{record.partition()}:{record.offset()}"


def headers(record: Message, prefix: str) -> dict[str, str]:
    found = [(name, value) for name, value in record.headers() or () if value is not None]
    return {name.removeprefix(prefix): value.decode() for name, value in found if name.startswith(prefix)}


def is_readable(event: Message) -> bool:
    """Whether it is JSON, and not dated in the future."""
    try:
        fields = json.loads(event.value())
    except ValueError:
        return False
    name = EVENT_TIMES[event.topic()]
    return name is None or datetime.fromisoformat(fields[name]) <= written_at(event) + MAX_AHEAD


def written_at(record: Message) -> datetime:
    _, ms = record.timestamp()
    return datetime.fromtimestamp(ms / 1000, UTC)


def large_orders(log: Log) -> Counter[str]:
    return Counter(at for at, order in log.orders() if order["amount"] > 1000)


def dead_letters(log: Log) -> Counter[tuple[str, str]]:
    """Each query that gives up anything of a topic gives up all that cannot be read there, once."""
    readers = {(query, at.split(":")[0]) for query, at in log.dead_letters()}
    return Counter(
        (query, at) for query, topic in readers for at in log.unreadable if at.startswith(f"{topic}:")
    )


def revenue_per_minute(log: Log) -> dict[tuple[str, datetime], tuple[int, Decimal]]:
    """By region and minute: how many orders, and for how much. Stragglers count."""
    found: dict[tuple[str, datetime], list[Decimal]] = defaultdict(list)
    for _, order in log.orders():
        minute = datetime.fromisoformat(order["placed_at"]).replace(second=0, microsecond=0)
        found[order["region"], minute].append(Decimal(str(order["amount"])))
    return {key: (len(amounts), sum(amounts, Decimal())) for key, amounts in found.items()}


def as_cents(
    rows: Iterable[tuple[str, datetime, int, float]],
) -> dict[tuple[str, datetime], tuple[int, Decimal]]:
    """The rows of that view; sums of doubles are exact to the cent."""
    return {(region, start): (count, round(Decimal(total), 2)) for region, start, count, total in rows}


def customers_per_tier(log: Log) -> dict[str, int]:
    return dict(Counter(each["tier"] for each in log.rows("shop.customers")))


def timelines(log: Log) -> set[tuple[str, str, str, str]]:
    posts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for post in log.rows("shop.posts"):
        posts[post["author"]].append(post)
    return {
        (each["follower"], post["post_id"], each["author"], post["text"])
        for each in log.rows("shop.follows")
        for post in posts[each["author"]]
    }


def orders_of_customers(log: Log) -> tuple[dict[str, Order], set[str]]:
    """Every order with the tier of its customer when it was placed; and which of them must be shown.

    An order is held until the table has passed its time: the last ones need not be there.
    """
    versions: dict[str, list[tuple[datetime, str | None]]] = defaultdict(list)
    passed: dict[int, datetime] = {}
    for each in log.topics["shop.customers"]:
        tier = None if each.value() is None else json.loads(each.value())["tier"]
        versions[json.loads(each.key())["customer_id"]].append((written_at(each), tier))
        passed[each.partition()] = written_at(each)
    expected, shown = {}, set()
    for _, order in log.orders():
        placed = datetime.fromisoformat(order["placed_at"])
        expected[order["order_id"]] = Order(order["amount"], tier_at(versions[order["customer_id"]], placed))
        if placed < min(passed.values()):
            shown.add(order["order_id"])
    return expected, shown


def tier_at(versions: list[tuple[datetime, str | None]], moment: datetime) -> str | None:
    """Of the last version that is not behind the moment; None if there is none, or it is a delete."""
    number = bisect_right(versions, moment, key=lambda version: version[0])
    return versions[number - 1][1] if number else None
