"""The demonstration's own parts: its traffic."""

from collections import Counter
from datetime import UTC, datetime
from itertools import islice, pairwise

import orjson

from headrace.demo.traffic import traffic

OPENING = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


def events(count, *, seed=1, rate=300):
    return list(islice(traffic(seed, rate, OPENING), count))


def test_the_same_seed_gives_the_same_events_and_another_does_not():
    first, again, other = (
        [event for event in events(300, seed=seed) if event.fault != "future"] for seed in (1, 1, 2)
    )
    assert first == again != other


def test_all_three_topics_get_their_share():
    counts = Counter(event.topic for event in events(3000))
    assert set(counts) == {"shop.orders", "shop.clicks", "shop.payments"}
    assert all(900 < count < 1100 for count in counts.values())


def test_a_second_of_traffic_is_a_minute_of_the_shop():
    orders = [event for event in events(900) if event.topic == "shop.orders" and event.fault is None]
    last = datetime.fromisoformat(orjson.loads(orders[-1].value)["placed_at"])
    assert 2 * 60 < (last - OPENING).total_seconds() < 3 * 60


def test_every_fault_happens_and_is_what_it_says():
    faulty = {}
    for event in events(20_000):
        faulty.setdefault(event.fault, event)
    assert set(faulty) == {None, "late", "future", "duplicate", "malformed"}
    try:
        orjson.loads(faulty["malformed"].value)
    except orjson.JSONDecodeError:
        pass
    else:
        raise AssertionError("a malformed event could be read")


def test_a_duplicate_is_the_same_event_again():
    listed = events(5000)
    pairs = [(before, event) for before, event in pairwise(listed) if event.fault == "duplicate"]
    assert pairs
    assert all(before.value == event.value and before.key == event.key for before, event in pairs)
