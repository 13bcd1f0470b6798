"""The demonstration's traffic: what happens in the shop."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import orjson
import pytest

from headrace.demo.traffic import (
    FAULTS,
    TOPICS,
    CustomerChange,
    ShopEvent,
    beginning,
    first_customers,
    slot_at,
    time_of,
    traffic,
)

RATE = 300
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
FIRST = slot_at(NOON, RATE)


def slots(count, *, seed=1, first=FIRST):
    return list(islice(traffic(seed, RATE, first), count))


def everything(count, **options):
    return [event for slot in slots(count, **options) for event in slot]


def events(count, **options):
    """What goes to the log."""
    return [event for event in everything(count, **options) if isinstance(event, ShopEvent)]


def customer_changes(count):
    """What goes to the database."""
    return [event for event in everything(count) if isinstance(event, CustomerChange)]


def test_the_same_seed_gives_the_same_events_and_another_does_not():
    assert everything(300) == everything(300) != everything(300, seed=2)


def test_a_second_of_slots_is_a_second_of_the_shop():
    assert time_of(FIRST, RATE) == NOON
    assert time_of(FIRST + RATE, RATE) == NOON + timedelta(seconds=1)
    stamps = [getattr(each, "timestamp_ms", None) or each.at_ms for each in everything(RATE + 1)]
    assert stamps == sorted(stamps)
    assert (stamps[0], stamps[-1]) == (NOON.timestamp() * 1000, NOON.timestamp() * 1000 + 1000)


@pytest.mark.parametrize(
    ("last_s", "begins_s"),
    [(-100_000, -720), (-721, -601), (-300, -180), (-60, 0), (-1, 0), (0, 0)],
    ids=["a new log", "long ago", "minutes ago", "a minute ago", "killed just now", "never closed"],
)
def test_the_shop_opens_where_it_closed_but_not_long_ago_and_not_in_what_may_be_published(last_s, begins_s):
    last, begins = (NOON + timedelta(seconds=each) for each in (last_s, begins_s))
    assert beginning(NOON, last, timedelta(seconds=720)) == begins


def test_whoever_goes_on_at_the_next_slot_repeats_no_order():
    def orders(listed):
        read = [orjson.loads(each.value) for each in listed if each.topic == "shop.orders" and not each.fault]
        return {order["order_id"] for order in read}

    before, after = orders(events(500)), orders(events(500, first=FIRST + 500))
    assert before and after and not before & after


def test_every_topic_gets_its_share():
    counts = Counter(event.topic for event in events(10_000))
    assert set(counts) == set(TOPICS)
    assert min(counts.values()) > 300


def test_every_fault_happens_and_none_is_frequent():
    counts = Counter(event.fault for event in events(20_000))
    assert set(counts) == {None, *FAULTS}
    assert counts[None] > 0.9 * 20_000


def first_with(fault):
    return next(event for event in events(20_000) if event.fault == fault)


def test_a_malformed_event_cannot_be_read():
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(first_with("malformed").value)


def test_a_duplicate_is_the_same_event_again():
    doubled = [slot for slot in slots(5_000) if len(slot) == 2]
    assert doubled
    assert all(one._replace(fault="duplicate") == other for one, other in doubled)


def test_an_event_from_the_future_is_a_year_ahead_of_its_record():
    event = first_with("future")
    fields = orjson.loads(event.value)
    (time,) = [fields[name] for name in ("placed_at", "clicked_at", "searched_at") if name in fields]
    ahead_s = datetime.fromisoformat(time).timestamp() - event.timestamp_ms / 1000
    assert ahead_s == pytest.approx(timedelta(days=365).total_seconds(), abs=1)


def test_a_terminal_with_a_wrong_clock_says_rightly_how_long_ago_it_was_paid():
    event = first_with("skewed")
    fields = orjson.loads(event.value)
    paid, sent = (datetime.fromisoformat(fields[name]).timestamp() for name in ("paid_at", "sent_at"))
    assert abs(sent - event.timestamp_ms / 1000) > 86_000
    assert 0 <= sent - paid < 2.01


def test_visitors_come_stay_a_minute_and_leave():
    clicks = [(event.timestamp_ms, event.key) for event in events(RATE * 180) if event.topic == "shop.clicks"]
    seen = {}
    for at, visitor in clicks:
        seen.setdefault(visitor, []).append(at)
    whole = [times for times in seen.values() if clicks[0][0] + 61_000 < times[0] < clicks[-1][0] - 61_000]
    assert whole
    assert all(times[-1] - times[0] <= 61_000 for times in whole)
    assert all(later - at < 60_000 for times in whole for at, later in pairwise(times)), "one visit each"


def test_rows_of_tables_name_their_key_and_some_are_deleted():
    rows = [each for each in events(20_000) if each.topic in ("shop.posts", "shop.follows")]
    there = [each for each in rows if each.value is not None]
    gone = {each.topic for each in rows if each.value is None}
    assert gone == {"shop.posts", "shop.follows"}
    assert all(orjson.loads(each.key).items() <= orjson.loads(each.value).items() for each in there)


def test_customers_sign_up_change_and_leave_and_keep_their_names():
    first = {each.customer_id: each.row["name"] for each in first_customers(0)}
    changes = customer_changes(20_000)
    there = [each for each in changes if each.row is not None]
    assert len(changes) > len(there) > 300
    assert {each.customer_id for each in there} <= set(first)
    assert all(each.row["name"] == first[each.customer_id] for each in there)
    assert [each.at_ms for each in changes] == sorted(each.at_ms for each in changes)
