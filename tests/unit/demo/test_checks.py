"""What the demo checks at its end: totals of what was sent, freshness, complaints."""

import pytest

from headrace.demo.checks import TrafficTotals, ViewVerdict, complaints, customer_complaints
from headrace.demo.monitor import Freshness

TOPIC = "shop.orders"
COUNTS = {TOPIC: 10, "shop.main.customers": 5}
NOTHING = {TOPIC: {0: 0, 1: 0}}


def report(pid, count, **fields):
    return {
        "pid": pid,
        "acknowledged": {TOPIC: count},
        "faults": {"late": 1},
        "failed": 0,
        "committed": 4,
        "behind_s": 0.0,
    } | fields


def verdict(**fields):
    data = {
        "view": "revenue",
        "rows": 3,
        "different": 0,
        "differences": [],
        "failure": None,
        "counters": {"on_time": 5, "corrected": 2, "dropped": 1, "filtered": 1, "dead": 1, "skipped": 7},
        "offsets": {TOPIC: {"0": 6, "1": 4}},
    }
    return ViewVerdict.from_json(data | fields)


def found(*verdicts, acknowledged=10, starts=NOTHING):
    return list(complaints(verdicts, COUNTS, starts, {TOPIC: acknowledged}))


def test_the_last_report_of_every_process_of_the_traffic_counts_once():
    totals = TrafficTotals()
    for each in (report(1, 5), report(1, 8), report(2, 3, behind_s=1.5, failed=1)):
        totals.note(each)
    assert totals.acknowledged == {TOPIC: 11}
    assert totals.faults == {"late": 2}
    assert (totals.failed, totals.committed, totals.behind_s) == (1, 8, 1.5)


def test_before_the_first_report_nothing_is_known_of_the_traffic():
    assert TrafficTotals().behind_s is None
    assert not TrafficTotals().acknowledged


def test_a_view_that_agrees_with_the_log_gives_no_complaint():
    assert found(verdict()) == []


def test_a_row_that_differs_is_a_complaint():
    difference = {"key": {"region": "north"}, "served": None, "recomputed": {"revenue": 1}}
    (line,) = found(verdict(different=1, differences=[difference]))
    assert line.startswith("DIFFERENT revenue {'region': 'north'}")


def test_a_view_that_could_not_be_verified_is_a_complaint_though_it_has_no_differences():
    (line,) = found(verdict(failure="its table is gone", counters={}, offsets={}))
    assert line == "NOT VERIFIED revenue: its table is gone"


def test_an_event_that_is_in_no_book_is_a_complaint():
    (line,) = found(verdict(counters={"on_time": 9}))
    assert line == "MISCOUNTED revenue: 10 events on the log, 9 in its counters"


def test_a_captured_topic_may_have_lost_records_that_were_counted_to_compaction_and_no_others():
    captured = {"offsets": {"shop.main.customers": {"0": 9}}}
    assert found(verdict(**captured)) == []
    (line,) = found(verdict(**captured, counters={"on_time": 4}))
    assert line == "MISCOUNTED revenue: 5 events on the log, 4 in its counters"


def customer(number, tier):
    return {"customer_id": f"customer-{number}", "name": "Ada", "tier": tier, "changed_at": 1}


def test_what_follows_the_database_is_compared_with_it():
    customers = [customer(1, "gold"), customer(2, "basic")]
    tiers = {"gold": 1, "basic": 1}
    assert list(customer_complaints(customers, customers[::-1], tiers)) == []
    (stale,) = customer_complaints(customers, [customers[0], customer(2, "gold")], tiers)
    assert stale.startswith("DIFFERENT search index customer-2: found {")
    (missing,) = customer_complaints(customers, customers[:1], tiers)
    assert missing.startswith("DIFFERENT search index customer-2: found None")
    (counted,) = customer_complaints(customers, customers, {"gold": 2})
    assert counted.startswith("DIFFERENT customers_per_tier")


@pytest.mark.parametrize(("acknowledged", "starts"), [(11, NOTHING), (9, {TOPIC: {0: 2}})])
def test_an_acknowledged_event_that_is_not_on_the_log_is_a_complaint(acknowledged, starts):
    (line,) = found(verdict(), acknowledged=acknowledged, starts=starts)
    assert line.startswith("LOST shop.orders")


def test_events_that_were_written_but_not_acknowledged_are_no_complaint():
    assert found(verdict(), acknowledged=7) == []


def test_freshness_is_how_long_ago_the_log_ended_where_the_view_is_now():
    fresh = Freshness()
    fresh.note(0.0, {0: 10}, {0: 0})
    fresh.note(1.0, {0: 20}, {0: 5})
    assert fresh.median_s is None and fresh.worst_s is None
    fresh.note(3.0, {0: 30}, {0: 20})
    assert (fresh.median_s, fresh.worst_s) == (2.5, 3.0)
    fresh.note(4.0, {0: 30}, {0: 30})
    assert (fresh.median_s, fresh.worst_s) == (1.5, 3.0)


def test_a_view_waits_for_every_partition_to_be_fresh():
    fresh = Freshness()
    fresh.note(0.0, {0: 1, 1: 1}, {0: 1})
    assert fresh.worst_s is None
