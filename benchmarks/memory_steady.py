"""The steady load of `memory.py`: searches and clicks, orders and customers that change, at a rate."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np
from bulk_topics import Ints, Rows, append, make_topics
from memory_topics import (
    CUSTOMER_KEY,
    PARTITIONS,
    TEMPLATES,
    WORDS,
    Views,
    as_of,
    ends_of,
    groups,
)

__all__ = ["SteadyLoad"]

TICK_S = 0.5
CUSTOMERS = 10_000
AHEAD_MS = 1_800_000  # of the last rows; rows further ahead than an hour are dead letters
SHARES = {"searches": 0.4, "clicks": 0.2, "orders": 0.35, "customers": 0.05}


class SteadyLoad:
    """Appends rows as time passes, and knows what the views must be at the end."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self._bootstrap = bootstrap
        self._rate = rate
        self._chance = np.random.default_rng(4)
        self._columns: dict[str, list[list[Ints]]] = defaultdict(list)
        self._numbers = dict.fromkeys(SHARES, 0)
        make_topics(bootstrap, dict.fromkeys(SHARES, PARTITIONS))
        began = int(time.time() * 1000) - 60_000
        self._append("customers", self._customers(np.arange(CUSTOMERS), np.full(CUSTOMERS, began)))

    @property
    def events(self) -> int:
        return sum(len(block[0]) for blocks in self._columns.values() for block in blocks)

    def run(self, seconds: float, each_minute: Callable[[float], None]) -> float:
        """Appends for so long; the seconds that it took."""
        began, told = time.monotonic(), 0
        last = began
        while True:
            time.sleep(TICK_S)
            now = time.monotonic()
            self._tick(int(time.time() * 1000), now - last)
            last, passed = now, now - began
            if passed // 60 > told:
                told = int(passed // 60)
                each_minute(told)
            if passed >= seconds:
                return passed

    def end(self) -> None:
        """A last row for each partition, ahead of all others, so that what waits for time comes out."""
        at = int(time.time() * 1000) + AHEAD_MS
        for topic in SHARES:
            append(self._bootstrap, topic, TEMPLATES[topic], iter(()), ends=ends_of(topic, at))

    def views(self) -> Views:
        searches, clicks, orders, customers = (
            [np.concatenate(each) for each in zip(*self._columns[topic], strict=True)] for topic in SHARES
        )
        valid = as_of(customers[0], customers[2], orders[1], orders[3])
        return {
            "by_region": groups(customers[1][valid], orders[2] + 1000),
            "per_minute": per_minute(searches, clicks),
        }

    def _tick(self, now_ms: int, seconds: float) -> None:
        chance = self._chance
        for topic, share in SHARES.items():
            rows = int(self._rate * share * seconds)
            number = self._numbers[topic] + np.arange(rows)
            self._numbers[topic] += rows
            at = np.sort(now_ms - chance.integers(0, int(seconds * 1000), rows))
            if topic == "searches":
                self._append(topic, [number, chance.integers(0, WORDS, rows), at])
            elif topic == "clicks":
                back = chance.integers(0, int(self._rate * SHARES["searches"] * 60), rows)
                self._append(topic, [number, np.maximum(self._numbers["searches"] - 1 - back, 0), at])
            elif topic == "orders":
                who, much = chance.integers(0, CUSTOMERS, rows), chance.integers(0, 1000, rows)
                self._append(topic, [number, who, much, at])
            else:
                self._append(topic, self._customers(chance.integers(0, CUSTOMERS, rows), at))

    def _customers(self, who: Ints, at: Ints) -> list[Ints]:
        return [who, self._chance.integers(0, 50, len(who)), at]

    def _append(self, topic: str, columns: list[Ints]) -> None:
        if not len(columns[0]):
            return
        is_table = topic == "customers"
        rows = Rows(columns, columns[-1], key=columns[0] if is_table else None)
        key = CUSTOMER_KEY if is_table else ""
        append(self._bootstrap, topic, TEMPLATES[topic], iter([rows]), key=key, ends={})
        self._columns[topic].append(columns)


def per_minute(searches: list[Ints], clicks: list[Ints]) -> Counter[tuple[object, ...]]:
    """Rows of the join and clicks found, by word and minute of the search."""
    word, at = searches[1], searches[2]
    waited = clicks[2] - at[clicks[1]]
    found = np.bincount(clicks[1][(waited >= 0) & (waited <= 30_000)], minlength=len(at))
    kinds, place = np.unique(at // 60_000 * WORDS + word, return_inverse=True)
    rows = np.bincount(place, weights=np.maximum(found, 1)).astype(int)
    clicked = np.bincount(place, weights=found).astype(int)
    return Counter(
        (f"w{kind % WORDS:02}", kind // WORDS * 60_000, n, some)
        for kind, n, some in zip(kinds.tolist(), rows.tolist(), clicked.tolist(), strict=True)
    )
