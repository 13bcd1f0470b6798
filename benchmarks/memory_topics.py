"""What `memory.py` writes to the topics of each case, and what the views must be at the end.

The right answers come from the numbers that the rows are made of, by numpy and nothing else.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from bulk_topics import Ints, Rows, append, blocks_of, make_topics

__all__ = [
    "CASES",
    "CUSTOMER_KEY",
    "ORDER_KEY",
    "PARTITIONS",
    "START_MS",
    "TEMPLATES",
    "WORDS",
    "Case",
    "Views",
    "Written",
    "as_of",
    "ends_of",
    "found_in",
    "groups",
]

PARTITIONS = 4
START_MS = 1_767_225_600_000
RATE = 10_000  # rows of the largest topic in a second of event time
DAY_MS = 86_400_000
REGIONS, WORDS = 50, 20

ORDER = '{"order_id":"o%08d","customer":"c%06d","amount":1%03d,"placed_at":%013d}'
CUSTOMER = '{"customer":"c%06d","region":"r%02d","changed_at":%013d}'
SEARCH = '{"search":"s%08d","word":"w%02d","at":%013d}'
CLICK = '{"click":"k%08d","search":"s%08d","clicked_at":%013d}'
ORDER_KEY, CUSTOMER_KEY = '{"order_id":"o%08d"}', '{"customer":"c%06d"}'
TEMPLATES = {"orders": ORDER, "customers": CUSTOMER, "searches": SEARCH, "clicks": CLICK}
END = {  # the last row of each partition, a day ahead, by topic; no result of it counts
    "orders": {"order_id": "end", "customer": "end", "amount": 0, "placed_at": 0},
    "customers": {"customer": "end", "region": "end", "changed_at": 0},
    "searches": {"search": "end", "word": "end", "at": 0},
    "clicks": {"click": "end", "search": "none", "clicked_at": 0},
}
TIMES = {"orders": "placed_at", "customers": "changed_at", "searches": "at", "clicks": "clicked_at"}

Views = dict[str, Counter[tuple[Any, ...]]]


@dataclass(slots=True)
class Written:
    """How many events a case has, and its views' rows as they must be."""

    events: int
    views: Views = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """One case: its topics, and what fills them with about so many events."""

    topics: tuple[str, ...]
    fill: Callable[[str, int], Written]
    events: int


def ends_of(topic: str, end_ms: int) -> dict[int, tuple[int, bytes]]:
    """The last row of each partition, with its time."""
    last = json.dumps({**END[topic], TIMES[topic]: end_ms}).encode()
    return dict.fromkeys(range(PARTITIONS), (end_ms, last))


def hot_key(bootstrap: str, events: int) -> Written:
    """A tenth of the events are new regions of 10,000 customers; 30 % of the orders are customer 0's."""
    make_topics(bootstrap, {"orders": PARTITIONS, "customers": PARTITIONS})
    chance = np.random.default_rng(1)
    customers, changes = min(10_000, events // 100), events // 10
    orders = events - changes
    span_ms = orders * 1000 // RATE
    who = np.concatenate([np.arange(customers), chance.integers(0, customers, changes - customers)])
    since = START_MS + np.maximum(np.arange(changes) - customers, -1) * span_ms // (changes - customers)
    region = chance.integers(0, REGIONS, changes)
    hot = chance.random(orders) < 0.3
    buyer = np.where(hot, 0, chance.integers(1, customers, orders))
    amount = chance.integers(0, 1000, orders)
    at = START_MS + np.arange(orders) * 1000 // RATE
    append(
        bootstrap,
        "customers",
        CUSTOMER,
        (Rows([who[i], region[i], since[i]], since[i], key=who[i]) for i in blocks_of(changes)),
        key=CUSTOMER_KEY,
        ends=ends_of("customers", int(at[-1]) + DAY_MS),
    )
    append(
        bootstrap,
        "orders",
        ORDER,
        (Rows([i, buyer[i], amount[i], at[i]], at[i]) for i in blocks_of(orders)),
        ends=ends_of("orders", int(at[-1]) + DAY_MS),
    )
    valid = as_of(who, since, buyer, at)
    return Written(
        events,
        {
            "by_region": groups(region[valid], amount + 1000),
            "largest": _largest(buyer, amount + 1000),
        },
    )


def as_of(who: Ints, since: Ints, buyer: Ints, at: Ints) -> Ints:
    """The place of the version that each order must get: the last of its customer by its time."""
    width = 1 << 45
    order = np.lexsort((np.arange(len(who)), since, who))
    found = np.searchsorted(who[order] * width + since[order], buyer * width + at, "right") - 1
    return order[found]


def groups(region: Ints, amount: Ints) -> Counter[tuple[Any, ...]]:
    n = np.bincount(region, minlength=REGIONS)
    total = np.bincount(region, weights=amount, minlength=REGIONS)
    return Counter((f"r{each:02}", int(n[each]), int(total[each])) for each in range(REGIONS) if n[each])


def _largest(buyer: Ints, amount: Ints) -> Counter[tuple[Any, ...]]:
    """The three largest amounts of each buyer; which orders they are does not matter here."""
    order = np.lexsort((-amount, buyer))
    sorted_by = buyer[order]
    first = np.searchsorted(sorted_by, sorted_by, "left")
    top = order[np.arange(len(order)) - first < 3]
    return Counter(
        (f"c{who:06}", much) for who, much in zip(buyer[top].tolist(), amount[top].tolist(), strict=True)
    )


def large_table(bootstrap: str, events: int) -> Written:
    """Orders of a tenth as many customers, most of the events; then changes and deletes of both."""
    make_topics(bootstrap, {"orders": PARTITIONS, "customers": PARTITIONS})
    chance = np.random.default_rng(2)
    changes = events // 5
    customers = (events - changes) // 11
    orders = events - changes - customers
    changed = changes * 9 // 10
    number = np.concatenate([np.arange(orders), chance.integers(0, orders, changed)])
    buyer, amount = (chance.integers(0, most, len(number)) for most in (customers, 1000))
    gone = (np.arange(len(number)) >= orders) & (chance.random(len(number)) < 0.05)
    who = np.concatenate([np.arange(customers), chance.integers(0, customers, changes - changed)])
    region = chance.integers(0, REGIONS, len(who))
    end = START_MS + len(number) * 1000 // RATE
    since = np.linspace(START_MS, end, len(who)).astype(np.int64)
    at = np.linspace(START_MS, end, len(number)).astype(np.int64)
    append(
        bootstrap,
        "customers",
        CUSTOMER,
        (Rows([who[i], region[i], since[i]], since[i], key=who[i]) for i in blocks_of(len(who))),
        key=CUSTOMER_KEY,
        ends={},
    )
    append(
        bootstrap,
        "orders",
        ORDER,
        (
            Rows([number[i], buyer[i], amount[i], at[i]], at[i], key=number[i], gone=gone[i])
            for i in blocks_of(len(number))
        ),
        key=ORDER_KEY,
        ends={},
    )
    last = np.zeros(orders, np.int64)
    last[number] = np.arange(len(number))  # of equal numbers numpy keeps the last
    last = last[~gone[last]]
    lives_in = np.zeros(customers, np.int64)
    lives_in[who] = region
    return Written(len(number) + len(who), {"by_region": groups(lives_in[buyer[last]], amount[last] + 1000)})


def far_behind(bootstrap: str, events: int) -> Written:
    """Four searches to a click, over the same time; each click up to a minute behind its search."""
    make_topics(bootstrap, {"searches": PARTITIONS, "clicks": PARTITIONS})
    chance = np.random.default_rng(3)
    clicks = events // 5
    searches = events - clicks
    search_at = START_MS + np.arange(searches) * 1000 // RATE
    word = chance.integers(0, WORDS, searches)
    clicked_at = np.linspace(START_MS, search_at[-1], clicks).astype(np.int64)
    back = chance.integers(0, 60 * RATE, clicks)
    found = np.maximum((clicked_at - START_MS) * RATE // 1000 - back, 0)
    append(
        bootstrap,
        "searches",
        SEARCH,
        (Rows([i, word[i], search_at[i]], search_at[i]) for i in blocks_of(searches)),
        ends=ends_of("searches", int(search_at[-1]) + DAY_MS),
    )
    append(
        bootstrap,
        "clicks",
        CLICK,
        (Rows([i, found[i], clicked_at[i]], clicked_at[i]) for i in blocks_of(clicks)),
        ends=ends_of("clicks", int(search_at[-1]) + DAY_MS),
    )
    waited = clicked_at - search_at[found]
    good = found[(waited >= 0) & (waited <= 30_000)]
    minute = search_at[good] // 60_000
    kinds, counts = np.unique(minute * WORDS + word[good], return_counts=True)
    return Written(
        events,
        {
            "per_minute": Counter(
                (f"w{kind % WORDS:02}", kind // WORDS * 60_000, n)
                for kind, n in zip(kinds.tolist(), counts.tolist(), strict=True)
            )
        },
    )


def found_in(view: str, rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """A view's rows in the form of the right ones, without those of the last rows of the topics."""
    return Counter(_row(view, each) for each in rows if "end" not in each.values())


def _row(view: str, row: dict[str, Any]) -> tuple[Any, ...]:
    if view == "by_region":
        return row["region"], row["n"], row["total"]
    if view == "largest":
        return row["customer"], row["amount"]
    begin = np.datetime64(row["window_start"].replace("+00:00", ""), "ms").astype(np.int64)
    return row["word"], int(begin), *(row[name] for name in ("n", "clicked") if name in row)


CASES = {
    "hot key": Case(("orders", "customers"), hot_key, 10_000_000),
    "large table": Case(("orders", "customers"), large_table, 6_600_000),
    "far behind": Case(("searches", "clicks"), far_behind, 20_000_000),
}
